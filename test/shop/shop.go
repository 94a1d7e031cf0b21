//go:build unix

// Package shop runs the real shop for tests: it builds `lab`, has it start every process on ports of its own with data of
// its own, and hands out what a test needs to talk to them and to hurt them. It knows no service from inside. Whatever
// happens to the test binary, the shop ends with it.
package shop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Settings change the shop that is started.
type Settings struct {
	Flags   []string // further flags of `lab up`
	Environ []string // NAME=VALUE, for lab itself; it passes OTEL_* and LOG_* on to every process
	// Folder is told the state folder before the shop starts; may be nil.
	Folder func(dir string)
}

// Prepare is called before the shop starts. The ports of the shop are the usual ones plus offset.
type Prepare func(offset int) (Settings, error)

// Usual has nothing to prepare.
func Usual(int) (Settings, error) { return Settings{}, nil }

// Lazy is the shop of one test binary. It is started by the first test that asks for it.
type Lazy struct {
	once    sync.Once
	prepare Prepare
	shop    *Shop
	err     error
}

// New returns a shop that is not started yet.
func New(prepare Prepare) *Lazy { return &Lazy{prepare: prepare} }

// Main runs the tests, then ends the shop if one of them started it. After a failure the processes' logs are kept, and
// where they are is printed.
func (l *Lazy) Main(m *testing.M) (code int) {
	code = m.Run()
	if l.shop == nil {
		return code
	}
	if code != 0 {
		l.shop.keepLogs(os.Stderr)
	}
	if err := l.shop.end(); err != nil {
		fmt.Fprintln(os.Stderr, "end the shop:", err)
		return max(code, 1)
	}
	return code
}

// Get returns the running shop.
func (l *Lazy) Get(tb testing.TB) *Shop {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts the whole shop")
	}
	l.once.Do(func() { l.shop, l.err = start(l.prepare) })
	if l.err != nil {
		tb.Fatal(l.err)
	}
	return l.shop
}

// Shop is a running shop. Its methods may be called from any goroutine that may call tb's.
type Shop struct {
	Root   string // the repository
	URL    string // of the gateway
	offset int
	dir    string // state folder
	guard  *exec.Cmd
	leash  io.Closer // the guard ends the shop when this is closed
}

// watch is the guard: it builds lab and starts the shop, says how that went, and ends the shop when its input ends, which
// it does when the test binary ends, also by a crash or a kill.
const watch = `
dir=$1; shift
{
  go build -buildvcs=false -o "$dir/lab" ./lab/cmd/lab &&
    "$dir/lab" up --detach --fresh --restart-backoff 1s --dir "$dir" "$@"
} >"$dir/up.log" 2>&1 </dev/null
code=$?
trap '' PIPE
echo $code 2>/dev/null
cat >/dev/null
"$dir/lab" down --dir "$dir" >/dev/null 2>&1 </dev/null
rm -rf "$dir"
`

// attempts is how many sets of ports are tried: another program may take a port between the look and the start.
const attempts = 3

func start(prepare Prepare) (*Shop, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		s, err := startAt(root, prepare)
		if err == nil || attempt == attempts || !strings.Contains(err.Error(), "is taken") {
			return s, err
		}
	}
}

func startAt(root string, prepare Prepare) (*Shop, error) {
	offset, err := freeOffset()
	if err != nil {
		return nil, err
	}
	settings, err := prepare(offset)
	if err != nil {
		return nil, fmt.Errorf("prepare the shop: %w", err)
	}
	s := &Shop{Root: root, offset: offset, URL: "http://" + address(httpPort+offset)}
	// Not a folder of the testing package: those are closed to the user whom PostgreSQL runs as, this one is open to all.
	if s.dir, err = os.MkdirTemp("", "shop"); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if settings.Folder != nil {
		settings.Folder(s.dir)
	}
	if err := s.begin(settings); err != nil {
		return nil, errors.Join(err, s.end(), os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *Shop) begin(settings Settings) error {
	if err := os.Chmod(s.dir, 0o755); err != nil { //nolint:gosec // see above
		return fmt.Errorf("state folder: %w", err)
	}
	return s.up(settings)
}

func (s *Shop) lab() string { return filepath.Join(s.dir, "lab") }

func (s *Shop) up(settings Settings) error {
	args := append([]string{"-c", watch, "guard", s.dir, "--port-offset", strconv.Itoa(s.offset)}, settings.Flags...)
	s.guard = exec.CommandContext(context.Background(), "sh", args...) // it must outlive every test
	s.guard.Dir = s.Root
	s.guard.Env = append(s.guard.Environ(), settings.Environ...)
	s.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt at the terminal is for the tests
	var err error
	if s.leash, err = s.guard.StdinPipe(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	said, err := s.guard.StdoutPipe()
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if err := s.guard.Start(); err != nil {
		s.guard = nil
		return fmt.Errorf("guard: %w", err)
	}
	code, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if code != "0\n" {
		out, err := os.ReadFile(filepath.Join(s.dir, "up.log"))
		return errors.Join(fmt.Errorf("start the shop: exit code %s%s", code, out), err)
	}
	return nil
}

// end ends the shop and removes what it kept.
func (s *Shop) end() error {
	if s.guard == nil {
		return nil
	}
	if err := s.leash.Close(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if err := s.guard.Wait(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

func (s *Shop) keepLogs(out io.Writer) {
	kept := s.dir + "-logs"
	if err := os.CopyFS(kept, os.DirFS(filepath.Join(s.dir, "logs"))); err != nil {
		fmt.Fprintln(out, "keep the shop's logs:", err)
		return
	}
	fmt.Fprintln(out, "the shop's logs are in", kept)
}

// Lab runs the lab program about this shop, as a user would in the repository, and returns how it went. Rusage tells what
// it needed.
func (s *Shop) Lab(tb testing.TB, args ...string) (out string, rusage *syscall.Rusage) {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), s.lab(), args...) // a cleanup calls it, too
	cmd.Dir = s.Root
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("lab %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	rusage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		tb.Fatal("this system does not tell what a process has used")
	}
	return stdout.String(), rusage
}

// LabCommand is the lab program about to be run, for a test that expects it to fail.
func (s *Shop) LabCommand(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), s.lab(), args...)
	cmd.Dir = s.Root
	return cmd
}

// Log returns what the process has written so far.
func (s *Shop) Log(tb testing.TB, process string) []byte {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "logs", process+".log"))
	if err != nil {
		tb.Fatal(err)
	}
	return content
}

// Program is the path of a service's program.
func (s *Shop) Program(service string) string { return filepath.Join(s.dir, "bin", service) }

// Eventually waits until the condition holds and fails the test when it does not hold within the time.
func Eventually(tb testing.TB, within time.Duration, what string, condition func() bool) {
	tb.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			tb.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}

const (
	host     = "127.0.0.1"
	natsPort = 4222
	httpPort = 8080
)

// Above the ports that systems hand out by themselves (on Linux up to 60999), so that nothing takes one by chance.
// Replicas have room above: each of a service has a port ten above the last one's.
const leastOffset, mostOffset = 10_950, 15_380

func freeOffset() (int, error) {
	ports := []int{natsPort, httpPort, 9080}
	for i := range 5 {
		ports = append(ports, 50051+i, 9081+i)
	}
	for range 50 {
		offset := leastOffset + rand.IntN(mostOffset-leastOffset)
		if allFree(ports, offset) {
			return offset, nil
		}
	}
	return 0, errors.New("no free set of ports found")
}

func allFree(ports []int, offset int) bool {
	for _, port := range ports {
		listener, err := net.Listen("tcp", address(port+offset))
		if err != nil {
			return false
		}
		listener.Close()
	}
	return true
}

func address(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("find the repository: no go.work above the working folder")
}
