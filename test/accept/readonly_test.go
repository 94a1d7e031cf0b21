//go:build unix

package accept

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/shop"
)

// sealed runs its arguments with everything read-only and no /tmp, as a container with a read-only root has it. The
// program is opened before, since it may lie in /tmp itself.
const sealed = `
exec 9<"$1"
mount --make-rprivate /
mount -o remount,bind,ro /
mount -t tmpfs -o ro,size=4k,mode=0555 none /tmp
cd /
exec /proc/self/fd/9
`

func TestFieldReport_46_TheWholeFlowWorksOnAReadOnlyRootWithoutTmp(t *testing.T) {
	s := live.Get(t)
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "mount", "-o", "remount,bind,ro", "/").CombinedOutput(); err != nil {
		t.Skipf("this test needs the right to mount (%v, %s)", err, bytes.TrimSpace(out))
	}
	// A second replica of each service, on the same databases and broker, and a gateway that calls those.
	const further = 7
	move := func(address string) string {
		host, port, _ := strings.Cut(address, ":")
		var n int
		if _, err := fmt.Sscan(port, &n); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s:%d", host, n+further)
	}
	services := s.Services(t)
	urls, pids := map[string]string{}, map[string]int{}
	for name, p := range services {
		environ := environOf(t, p.PID)
		environ["TMPDIR"], environ["HOME"] = "/nonexistent", "/nonexistent"
		for protocol, address := range p.Addresses {
			environ[strings.ToUpper(protocol)+"_ADDR"] = move(address)
		}
		if name == "gateway" {
			for _, upstream := range []string{"checkout", "search", "recs"} {
				environ[strings.ToUpper(upstream)+"_ADDR"] = "dns:///" + move(services[upstream].Addresses["grpc"])
			}
		}
		pids[name] = run(t, s, name, environ)
		urls[name] = "http://" + move(p.Addresses["admin"]) + "/readyz"
	}
	for name, url := range urls {
		shop.Eventually(t, 30*time.Second, name+" is ready", func() bool {
			a, err := s.Try(t, http.MethodGet, url, "")
			return err == nil && a.Status == http.StatusOK
		})
	}

	for name, pid := range pids {
		if mounts := read(t, fmt.Sprintf("/proc/%d/mountinfo", pid)); !regexp.MustCompile(`(?m) / / ro`).MatchString(mounts) || !regexp.MustCompile(`(?m) / /tmp ro`).MatchString(mounts) {
			t.Errorf("%s can write:\n%s", name, mounts)
		}
	}

	sealedShop := *s
	sealedShop.URL = "http://" + move(services["gateway"].Addresses["http"])
	item := somethings(t, &sealedShop, 1)[0]
	var page productPage
	shop.Eventually(t, 10*time.Second, "the page comes with recommendations", func() bool {
		sealedShop.Get(t, "/api/v1/products/"+item.ID).Into(t, http.StatusOK, &page)
		return len(page.Recommendations) > 0
	})
	if a := sealedShop.Get(t, "/products/"+item.ID); a.Status != http.StatusOK {
		t.Errorf("the page: %d", a.Status)
	}
	o := mustPlace(t, &sealedShop, newKey(), wish(someone(), item.ID, "1"))
	readEvents(t, &sealedShop, "/api/v1/orders/"+o.ID+"/events", "", 1)
}

// environOf reads the environment that a process was started with.
func environOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	environ := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimRight(read(t, fmt.Sprintf("/proc/%d/environ", pid)), "\x00"), "\x00") {
		name, value, _ := strings.Cut(line, "=")
		environ[name] = value
	}
	return environ
}

// run starts a service's program, sealed, until the end of the test.
func run(t *testing.T, s *shop.Shop, name string, environ map[string]string) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-e", "-c", sealed, name, s.Program(name))
	for variable, value := range environ {
		cmd.Env = append(cmd.Env, variable+"="+value)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // killed: the test's context has ended
		if t.Failed() {
			t.Logf("%s said at the end:\n%s", name, tail(log.String()))
		}
	})
	return cmd.Process.Pid
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
