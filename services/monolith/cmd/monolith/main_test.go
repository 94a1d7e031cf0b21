package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/postgres/pgtest"
)

// asProcess turns the test's own program into the command, so that a fault can end it.
const asProcess = "MONOLITH_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		os.Args = os.Args[:1]
		main()
		return
	}
	os.Exit(m.Run())
}

// databases makes one for each service and returns the variables that lead there.
func databases(t *testing.T) (environ []string) {
	t.Helper()
	for _, service := range []string{"CHECKOUT", "INVENTORY", "PAYMENT", "SEARCH", "RECS"} {
		app, owner := pgtest.NewRoles(t)
		environ = append(environ, service+"_DATABASE_URL="+app, service+"_MIGRATE_DATABASE_URL="+owner)
	}
	return environ
}

// child is the command as a process of its own.
type child struct {
	url, admin string
	cmd        *exec.Cmd
	out        bytes.Buffer
	exited     chan error
}

func start(t *testing.T, environ ...string) *child {
	t.Helper()
	c := &child{exited: make(chan error, 1)}
	public, admin := freeAddr(t), freeAddr(t)
	c.url, c.admin = "http://"+public, "http://"+admin
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append([]string{asProcess + "=1", "HTTP_ADDR=" + public, "ADMIN_ADDR=" + admin, "GRPC_ADDR=127.0.0.1:0", "DRAIN_DELAY=0s"}, environ...)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.exited <- c.cmd.Wait() }()
	t.Cleanup(func() { _ = c.cmd.Process.Kill() }) // it may have ended
	eventually(t, "ready", func() bool { return ask(t, http.MethodGet, c.admin+"/readyz", "") == http.StatusOK })
	return c
}

// wait returns how the process ended.
func (c *child) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-c.exited:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		t.Fatal("the process does not end")
		return 0
	}
}

// ask returns the status of the answer, or 0 when there is none.
func ask(t *testing.T, method, url, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// What pools cannot do: a feature that crashes takes the whole shop with it, pools of their own or not, and for as long as
// the fault is there it cannot even be started for long.
func TestRun_ACrashOfOneFeatureEndsTheProcess(t *testing.T) {
	environ := append(databases(t), "POOLS=per-feature", "FAULTS_ENABLED=true",
		"NATS_URL="+brokertest.Start(t, fault.Bucket, "instances").URL())
	c := start(t, environ...)
	if got := ask(t, http.MethodPut, c.url+"/api/v1/faults/recs", `{"kind":"crash","ttl_s":600}`); got != http.StatusOK {
		t.Fatalf("setting the fault: %d", got)
	}
	var codes []int
	for range 2 { // the fault outlives the process
		eventually(t, "the request for recommendations kills the process", func() bool {
			return ask(t, http.MethodGet, c.url+"/api/v1/recommendations", "") == 0
		})
		if got := ask(t, http.MethodGet, c.url+"/api/v1/products", ""); got != 0 {
			t.Errorf("search answers %d after the crash", got)
		}
		codes = append(codes, c.wait(t))
		if len(codes) < 2 {
			c = start(t, environ...)
		}
	}
	for _, code := range codes {
		if code != fault.CrashCode {
			t.Errorf("exit code %d, want %d: %s", code, fault.CrashCode, c.out.String())
		}
	}
}

func TestRun_DrainsAndEndsWell(t *testing.T) {
	c := start(t, databases(t)...)
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := c.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0: %s", code, c.out.String())
	}
}

func TestRun_SaysWhichVariableIsWrong(t *testing.T) {
	right := []string{"ADMIN_ADDR=127.0.0.1:0"}
	for _, service := range []string{"CHECKOUT", "INVENTORY", "PAYMENT", "SEARCH", "RECS"} {
		right = append(right, service+"_DATABASE_URL=postgres://u:p@127.0.0.1:1/"+service)
	}
	for variable, want := range map[string]string{
		"POOLS=both": "POOLS", "POOL_SIZE=0": "POOL_SIZE", "POOL_QUEUE=-1": "POOL_QUEUE", "FEATURES=cart": "FEATURES", "CHECKOUT_POOL_SIZE=4": "CHECKOUT_POOL_SIZE",
		"CHECKOUT_DATABASE_URL=": "CHECKOUT_DATABASE_URL", "PAYMENT_DATABASE_URL=mysql": "PAYMENT_DATABASE_URL", "RECS_DB_MAX_CONNS=-1": "RECS_DB_MAX_CONNS",
		"ORDER_EXPIRY=0s": "ORDER_EXPIRY", "HTTP_ADDR=nonsense": "HTTP_ADDR",
	} {
		err := run(t.Context(), nil, append(right, variable), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", variable, err, want)
		}
	}
	for variable, want := range map[string]string{"POOL_SIZE=2": "POOL_SIZE", "RECS_POOL_SIZE=0": "RECS_POOL_SIZE", "SEARCH_POOL_QUEUE=-1": "SEARCH_POOL_QUEUE"} {
		err := run(t.Context(), nil, append(right, "POOLS=per-feature", variable), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", variable, err, want)
		}
	}
	if err := run(t.Context(), []string{"serve"}, nil, io.Discard); err == nil {
		t.Error("an argument was taken")
	}
}

func TestHelp_ListsEveryVariableWithItsDefault(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, nil, &out); !errors.Is(err, config.ErrHelp) {
		t.Fatal(err)
	}
	help := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"HTTP_ADDR [:8080]", "ADMIN_ADDR [:9080]", "GRPC_ADDR [:50051]", "FEATURES [checkout,search,recs]", "POOLS [shared]", "POOL_SIZE [16]", "POOL_QUEUE [32]",
		"CHECKOUT_POOL_SIZE []", "CHECKOUT_DATABASE_URL []", "INVENTORY_DATABASE_URL []", "PAYMENT_MIGRATE_DATABASE_URL []", "RECS_TIMEOUT [150ms]", "ORDER_EXPIRY [5m]",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("help lacks %q", want)
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// freeAddr returns an address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
