//go:build unix

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/watertight/lab/natsserver"
	"example.com/watertight/lab/proc"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
)

// labOptions, when it is set, makes this test binary a lab of its own, which a test can kill.
const labOptions = "RUNNER_TEST_OPTIONS"

func TestMain(m *testing.M) {
	broker := len(os.Args) == 4 && os.Args[1] == "nats-server"
	if !broker && os.Getenv(labOptions) == "" {
		os.Exit(m.Run())
	}
	if err := asChild(broker); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// asChild is what this binary does when a test, or Up, has started it.
func asChild(broker bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if broker {
		return natsserver.Run(ctx, os.Args[3])
	}
	var c childOptions
	if err := json.Unmarshal([]byte(os.Getenv(labOptions)), &c); err != nil {
		return err
	}
	return Up(ctx, c.options(os.Stdout))
}

// childOptions are Options as far as they can be handed to another process.
type childOptions struct {
	Root       string `json:"root"`
	Dir        string `json:"dir"`
	PortOffset int    `json:"port_offset"`
}

func (c childOptions) options(out io.Writer) Options {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Options{
		Root: c.Root, Dir: statedir.At(c.Dir), Lab: self, Out: out,
		Backoff:      supervise.Backoff{First: 200 * time.Millisecond, Max: time.Second, Quiet: time.Hour},
		ReadyTimeout: 2 * time.Minute, Shop: shop.Options{PortOffset: c.PortOffset, Env: map[string]map[string]string{}},
		PGBin: os.Getenv("PG_BIN"), Path: os.Getenv("PATH"), Environ: os.Environ(),
	}
}

// newOptions are for a shop of its own: a project with the services, an empty state folder, and ports that are free.
func newOptions(t *testing.T, services ...string) childOptions {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL, NATS and several processes")
	}
	// The folders of package testing are closed to other users, as whom PostgreSQL may run.
	dir, err := os.MkdirTemp("", "runner") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root := fakeProject(t, services...)
	for range 20 {
		c := childOptions{Root: root, Dir: filepath.Join(dir, "state"), PortOffset: 1000 + rand.IntN(14_000)}
		o := shop.Options{PortOffset: c.PortOffset}
		if ports, err := o.HoldPorts(o.Plan(o.Present(root), "", nil, nil)); err == nil {
			ports.Release()
			return c
		}
	}
	t.Fatal("no free ports found")
	return childOptions{}
}

// running is a shop that a test started.
type running struct {
	t       *testing.T
	options Options
	cancel  context.CancelFunc
	ended   chan error
	output  *output
}

// output collects what Up writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// bring starts a shop and waits until it is ready.
func bring(t *testing.T, options Options) *running {
	t.Helper()
	r := &running{t: t, options: options, ended: make(chan error, 1), output: &output{}}
	ready := make(chan struct{})
	r.options.Out, r.options.Ready = r.output, func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- Up(ctx, r.options) }()
	select {
	case <-ready:
	case err := <-r.ended:
		t.Fatalf("the shop did not start: %v\n%s", err, r.output)
	}
	return r
}

// end ends the shop, and checks that nothing of it is left.
func (r *running) end() {
	r.t.Helper()
	instance := r.instance()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("end: %v", err)
	}
	nothingLeft(r.t, instance)
	if _, err := r.options.Dir.ReadInstance(); !errors.Is(err, statedir.ErrNotRunning) {
		r.t.Errorf("the record of a shop that has ended: got %v, want %v", err, statedir.ErrNotRunning)
	}
}

func nothingLeft(t *testing.T, instance statedir.Instance) {
	t.Helper()
	for _, p := range instance.Processes {
		if p.Process != nil && p.Process.Alive() {
			t.Errorf("%s (pid %d) is left running", p.Name, p.Process.PID)
		}
	}
}

func (r *running) instance() statedir.Instance {
	r.t.Helper()
	instance, err := r.options.Dir.ReadInstance()
	if err != nil {
		r.t.Fatal(err)
	}
	return instance
}

// await waits until the named process is as it should be.
func (r *running) await(name, what string, holds func(statedir.Process) bool) statedir.Process {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		p := find(r.t, r.instance(), name)
		if holds(p) {
			return p
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not %s, got %+v\n%s", name, what, p, r.output)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func find(t *testing.T, instance statedir.Instance, name string) statedir.Process {
	t.Helper()
	for _, p := range instance.Processes {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no process is called %s", name)
	return statedir.Process{}
}

func get(t *testing.T, p statedir.Process, path string) string {
	t.Helper()
	body, err := fetch(t.Context(), "http://"+p.Addresses["admin"]+path)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// variable reads one variable of a fake service.
func variable(t *testing.T, p statedir.Process, name string) string {
	t.Helper()
	for line := range strings.Lines(get(t, p, "/env")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return value
		}
	}
	t.Errorf("%s has no %s", p.Name, name)
	return ""
}

func TestUp_RunsAShopThatKeepsItsData(t *testing.T) {
	c := newOptions(t, "checkout", "recs", "gateway")
	options := c.options(nil)
	options.Shop.Replicas = map[string]int{"recs": 2}
	seeds := 0
	options.Seed = func(_ context.Context, targets map[string]string) (string, error) {
		seeds++
		if want := fmt.Sprintf("127.0.0.1:%d", 50051+c.PortOffset); targets["checkout"] != want || len(targets) != 2 {
			t.Errorf("seed targets: got %v, want checkout at %s, and recs", targets, want)
		}
		return "a test's catalog", nil
	}

	shop := bring(t, options)
	instance := shop.instance()
	var names []string
	for _, p := range instance.Processes {
		names = append(names, p.Name)
		if !p.Ready || p.Phase != supervise.Running || p.Restarts != 0 {
			t.Errorf("%s: got %+v, want it running and ready", p.Name, p.Status)
		}
	}
	if got, want := strings.Join(names, " "), "postgres nats checkout recs recs-2 gateway"; got != want {
		t.Errorf("processes: got %s, want %s", got, want)
	}
	if want := fmt.Sprintf("http://localhost:%d", 8080+c.PortOffset); !instance.Ready || instance.Gateway != want {
		t.Errorf("ready %v at %s, want %s", instance.Ready, instance.Gateway, want)
	}
	checkout := find(t, instance, "checkout")
	writes(t, variable(t, checkout, "MIGRATE_DATABASE_URL"), variable(t, checkout, "DATABASE_URL"))
	readsFaults(t, variable(t, checkout, "NATS_URL"))
	if got, want := variable(t, find(t, instance, "gateway"), "RECS_ADDR"), fmt.Sprintf("static:///127.0.0.1:%d,127.0.0.1:%d", 50053+c.PortOffset, 50063+c.PortOffset); got != want {
		t.Errorf("RECS_ADDR: got %s, want %s", got, want)
	}
	if out := shop.output.String(); !strings.Contains(out, "recs-2       | serving\n") {
		t.Errorf("no line of recs-2 under its name in:\n%s", out)
	}

	if err := Up(t.Context(), options); !errors.As(err, new(*statedir.LockedError)) {
		t.Errorf("a second shop in the same folder: got %v, want a LockedError", err)
	}
	shop.end()

	shop = bring(t, options)
	row := reads(t, shop.instance().Databases["checkout"])
	shop.end()
	if row != "kept" || seeds != 1 {
		t.Errorf("after a restart: row %q and %d seeds, want kept and 1", row, seeds)
	}

	options.Fresh = true
	shop = bring(t, options)
	conn, err := pgx.Connect(t.Context(), shop.instance().Databases["checkout"])
	if err != nil {
		t.Fatal(err)
	}
	var missing bool
	if err := conn.QueryRow(t.Context(), `SELECT to_regclass('kept') IS NULL`).Scan(&missing); err != nil || !missing {
		t.Errorf("--fresh kept the data (%v)", err)
	}
	_ = conn.Close(t.Context())
	shop.end()
	if seeds != 2 {
		t.Errorf("seeds: got %d, want 2", seeds)
	}
}

// writes makes a table as the owner and a row as the service.
func writes(t *testing.T, ownerURL, serviceURL string) {
	t.Helper()
	for _, step := range []struct{ url, statement string }{
		{ownerURL, `CREATE TABLE kept (value text)`}, {serviceURL, `INSERT INTO kept VALUES ('kept')`},
	} {
		conn, err := pgx.Connect(t.Context(), step.url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), step.statement); err != nil {
			t.Errorf("%s: %v", step.statement, err)
		}
		_ = conn.Close(t.Context())
	}
}

func reads(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var value string
	if err := conn.QueryRow(t.Context(), `SELECT value FROM kept`).Scan(&value); err != nil {
		t.Error(err)
	}
	return value
}

func readsFaults(t *testing.T, url string) {
	t.Helper()
	conn, err := natsserver.Connect(url, "checkout")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	faults, err := js.KeyValue(t.Context(), natsserver.FaultsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := faults.Get(t.Context(), "recs"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a fault that nobody set: got %v, want %v", err, jetstream.ErrKeyNotFound)
	}
}

func TestUp_StartsEveryKindOfProcessAgain(t *testing.T) {
	shop := bring(t, newOptions(t, "checkout", "gateway").options(nil))
	defer shop.end()
	for _, name := range []string{"checkout", "nats", "postgres"} {
		before := shop.await(name, "ready", func(p statedir.Process) bool { return p.Ready })
		if err := before.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// A server whose backends have not all noticed yet may need a second start.
		after := shop.await(name, "running again", func(p statedir.Process) bool { return p.Ready && p.Restarts > before.Restarts })
		if after.LastExit == nil || *after.Process == *before.Process {
			t.Errorf("%s: got %+v, want a new process and the exit of the old one", name, after.Status)
		}
	}
	checkout := find(t, shop.instance(), "checkout")
	if body, err := fetch(t.Context(), "http://"+checkout.Addresses["admin"]+"/exit?code=137"); err == nil {
		t.Errorf("a process that ends answered %q", body)
	}
	shop.await("checkout", "out of memory", func(p statedir.Process) bool {
		return p.LastExit != nil && p.LastExit.Reason == supervise.OOMKilled
	})
	if out := shop.output.String(); !strings.Contains(out, "checkout died (OOMKilled, exit code 137); starts again in") {
		t.Errorf("nobody was told:\n%s", out)
	}
}

func TestUp_ShowsTheLastLinesOfAServiceThatDoesNotStart(t *testing.T) {
	options := newOptions(t, "checkout", "gateway").options(&output{})
	options.Shop.Env = map[string]map[string]string{"checkout": {"FAIL_AT_START": "the moon is full"}}
	err := Up(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "checkout ended before it was ready (exit code 3)") || !strings.Contains(err.Error(), "cannot start: the moon is full") {
		t.Errorf("got %v, want the exit code and the last line", err)
	}
	if _, err := options.Dir.ReadInstance(); !errors.Is(err, statedir.ErrNotRunning) {
		t.Errorf("afterwards: got %v, want %v", err, statedir.ErrNotRunning)
	}
}

func TestUp_ShowsWhatDoesNotCompile(t *testing.T) {
	c := newOptions(t, "checkout", "gateway")
	write(t, filepath.Join(c.Root, "gateway", "cmd", "gateway", "broken.go"), "package main\n\nvar x undefined\n")
	err := Up(t.Context(), c.options(&output{}))
	if err == nil || !strings.Contains(err.Error(), "broken.go:3") {
		t.Errorf("got %v, want the compiler's line", err)
	}
}

func TestUp_RefusesToStartOnAPortThatIsTaken(t *testing.T) {
	c := newOptions(t, "gateway")
	taken := &http.Server{Addr: fmt.Sprintf("127.0.0.1:%d", 8080+c.PortOffset)}
	listening := make(chan error, 1)
	go func() { listening <- taken.ListenAndServe() }()
	defer taken.Close()
	awaitAnswer(t, "http://"+taken.Addr)
	err := Up(t.Context(), c.options(&output{}))
	if err == nil || !strings.Contains(err.Error(), "gateway http") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that names gateway http", err)
	}
}

func awaitAnswer(t *testing.T, url string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := fetch(t.Context(), url)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// bringChild starts a lab that is a process of its own, and waits until its shop is ready.
func bringChild(t *testing.T, c childOptions) (*exec.Cmd, statedir.Instance) {
	t.Helper()
	content, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), labOptions+"="+string(content))
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	deadline := time.Now().Add(2 * time.Minute)
	for {
		instance, err := statedir.At(c.Dir).ReadInstance()
		if err == nil && instance.Ready {
			return cmd, instance
		}
		if time.Now().After(deadline) {
			t.Fatalf("the shop is not ready (%v):\n%s", err, out)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestUp_LeavesNoProcessWhenItIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a process that is killed")
	}
	c := newOptions(t, "checkout", "gateway")
	lab, instance := bringChild(t, c)
	if err := lab.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = lab.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, p := range instance.Processes {
		if err := p.Process.Wait(ctx); err != nil {
			t.Errorf("%s outlives its lab: %v", p.Name, err)
		}
	}
	shop := bring(t, c.options(nil)) // the lock, the record and the data are in order
	shop.end()
}

func TestDown_EndsAShopWhoseProcessesAreStopped(t *testing.T) {
	c := newOptions(t, "checkout", "gateway")
	lab, instance := bringChild(t, c)
	for _, name := range []string{"checkout", "nats", "postgres"} {
		if err := find(t, instance, name).Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := Down(t.Context(), statedir.At(c.Dir), time.Minute); err != nil || !was {
		t.Errorf("got %v (%v), want a shop that was ended", was, err)
	}
	if err := lab.Wait(); err != nil {
		t.Errorf("lab: %v", err)
	}
	nothingLeft(t, instance)
	if was, err := Down(t.Context(), statedir.At(c.Dir), time.Minute); err != nil || was {
		t.Errorf("a second time: got %v (%v), want nothing to end", was, err)
	}
}

func TestDown_KillsALabThatDoesNotEnd(t *testing.T) {
	c := newOptions(t, "gateway")
	lab, instance := bringChild(t, c)
	gateway := find(t, instance, "gateway")
	if err := lab.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// SIGCONT wakes it; a patience of next to nothing then stands for a lab that hangs.
	if was, err := Down(t.Context(), statedir.At(c.Dir), time.Millisecond); err != nil && !strings.Contains(err.Error(), "does not end") || !was {
		t.Fatalf("got %v (%v), want a shop that was ended", was, err)
	}
	_ = lab.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := gateway.Process.Wait(ctx); err != nil {
		t.Errorf("the gateway outlives its lab: %v", err)
	}
	if _, err := Down(t.Context(), statedir.At(c.Dir), time.Minute); err != nil {
		t.Error(err)
	}
	nothingLeft(t, instance)
}

func TestDown_EndsWhatAKilledLabLeft(t *testing.T) {
	dir := statedir.At(filepath.Join(t.TempDir(), "state"))
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	orphan, stranger := sleeper(t), sleeper(t)
	for _, cmd := range []*exec.Cmd{orphan, stranger} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	left, _ := proc.Identify(orphan.Process.Pid)
	reused := proc.ID{PID: stranger.Process.Pid, Start: "another boot/1"}
	if err := dir.WriteInstance(statedir.Instance{
		Supervisor: proc.ID{PID: 1 << 22, Start: "gone"},
		Processes: []statedir.Process{
			{Status: supervise.Status{Name: "checkout", Service: "checkout", Process: &left}},
			{Status: supervise.Status{Name: "recs", Service: "recs", Process: &reused}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	if was, err := Down(t.Context(), dir, time.Minute); err != nil || !was {
		t.Errorf("got %v (%v), want processes that were ended", was, err)
	}
	if left.Alive() {
		t.Error("what the killed lab left still runs")
	}
	if _, alive := proc.Identify(stranger.Process.Pid); !alive {
		t.Error("a foreign process with a pid of the record was ended")
	}
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "/bin/sleep", "60")
}

func TestDown_InAFolderThatIsNotThereMakesNone(t *testing.T) {
	dir := statedir.At(filepath.Join(t.TempDir(), "nothing"))
	if was, err := Down(t.Context(), dir, time.Minute); err != nil || was {
		t.Errorf("got %v (%v), want nothing to end", was, err)
	}
	if _, err := os.Stat(dir.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
}
