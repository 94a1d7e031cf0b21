package report

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// frame holds the page in the width of a telephone, and writes down what it finds there once the page is laid out.
const frame = `<!doctype html><html><body><pre id="found">waiting</pre>
<iframe id="page" src="/report" style="width:360px;height:800px;border:0"></iframe>
<script>
document.getElementById("page").onload = function () {
  var d = this.contentDocument, drawn = 0;
  d.querySelectorAll("svg[role=img]").forEach(function (s) { var b = s.getBoundingClientRect(); if (b.width > 100 && b.height > 20) drawn++; });
  document.getElementById("found").textContent = "over=" + (d.documentElement.scrollWidth - d.documentElement.clientWidth) + " drawn=" + drawn + " heading=" + d.querySelector("h1").textContent;
};
</script></body></html>`

// chromium is the browser's program, or the test is skipped where there is none. In CI there is one.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium is installed (on Debian: apt-get install chromium)")
	return ""
}

func TestPage_InABrowserFitsATelephoneAndComplainsOfNothing(t *testing.T) {
	program := chromium(t)
	content := page(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// A browser that obeys this loads nothing but the page, and says so on its console when something tries.
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:")
		fmt.Fprint(w, content)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, frame)
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := []string{"--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir=" + t.TempDir(),
		"--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom", server.URL + "/"}
	if os.Geteuid() == 0 { // as root it refuses to run with its own sandbox
		args = append([]string{"--no-sandbox"}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the browser: %v\n%s", err, complaints.String())
	}
	found := regexp.MustCompile(`over=(\d+) drawn=(\d+) heading=([^<]*)`).FindStringSubmatch(string(out))
	if found == nil {
		t.Fatalf("the page was not laid out: %s\n%s", out, complaints.String())
	}
	if found[1] != "0" {
		t.Errorf("the page is %s px too wide for a window of 360", found[1])
	}
	if found[2] == "0" || found[3] == "" {
		t.Errorf("got %s drawings and the heading %q, want some of both", found[2], found[3])
	}
	for line := range strings.Lines(complaints.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("on the console: %s", line)
		}
	}
}
