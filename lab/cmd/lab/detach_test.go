package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/supervise"
)

// readyGateway is the least that lab takes for a gateway.
const readyGateway = `package main

import (
	"net/http"
	"os"
)

func main() {
	if os.Getenv("FAIL") != "" {
		os.Exit(5)
	}
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	_ = http.ListenAndServe(os.Getenv("ADMIN_ADDR"), nil)
}
`

// smallProject is a workspace with a gateway, in a folder that PostgreSQL's user may enter, and an offset of free ports.
func smallProject(t *testing.T) (root, offset string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL and NATS")
	}
	root, err := os.MkdirTemp("", "lab") //nolint:usetesting // the folders of package testing are closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(filepath.Join(root, "gateway", "cmd", "gateway"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.work":                     "go 1.26.0\nuse ./gateway\n",
		"gateway/go.mod":              "module example.com/gateway\n\ngo 1.26.0\n",
		"gateway/cmd/gateway/main.go": readyGateway,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		o := shop.Options{PortOffset: 1000 + rand.IntN(14_000)}
		if ports, err := o.HoldPorts(o.Plan(o.Present(root), "", nil, nil)); err == nil {
			ports.Release()
			return root, strconv.Itoa(o.PortOffset)
		}
	}
	t.Fatal("no free ports found")
	return "", ""
}

func TestDetach_LeavesTheShopRunningUntilDown(t *testing.T) {
	root, offset := smallProject(t)
	out, errOut, code := lab(t, root, "up", "--detach", "--no-seed", "--port-offset", offset)
	t.Cleanup(func() { lab(t, root, "down") })
	if code != 0 || !strings.Contains(out, "\nready\n") {
		t.Fatalf("up --detach: exit code %d, %q, %q", code, out, errOut)
	}
	out, errOut, code = lab(t, root, "ps", "--output", "json")
	var answer psAnswer
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || len(answer.Processes) != 3 {
		t.Fatalf("ps: exit code %d, %q, %q: %v", code, out, errOut, err)
	}
	for _, p := range answer.Processes {
		if p.Status != supervise.Running || !p.Ready || p.PID == 0 {
			t.Errorf("%s: got %+v, want it running and ready", p.Name, p)
		}
	}
	for _, args := range [][]string{{"up"}, {"up", "--detach"}, {"up", "--fresh"}} {
		_, errOut, code := lab(t, root, append(args, "--port-offset", offset)...)
		if code != 1 || !strings.Contains(errOut, "a shop runs in") || strings.Count(errOut, "\n") != 1 {
			t.Errorf("a second lab %v: exit code %d, %q, want 1 and one line", args, code, errOut)
		}
	}
	out, errOut, code = lab(t, root, "down")
	if code != 0 || !strings.Contains(out, "the shop has ended") {
		t.Errorf("down: exit code %d, %q, %q", code, out, errOut)
	}
	if _, _, code := lab(t, root, "ps"); code != 1 {
		t.Errorf("ps after down: exit code %d, want 1", code)
	}
}

func TestDetach_TellsWhyTheShopDidNotStart(t *testing.T) {
	root, offset := smallProject(t)
	_, errOut, code := lab(t, root, "up", "--detach", "--no-seed", "--port-offset", offset, "--env", "gateway.FAIL=1")
	if code != 1 || !strings.Contains(errOut, "gateway ended before it was ready (exit code 5)") {
		t.Errorf("exit code %d, %q, want 1 and the reason", code, errOut)
	}
	if _, _, code := lab(t, root, "ps"); code != 1 {
		t.Errorf("ps: exit code %d, want 1: nothing is left running", code)
	}
}
