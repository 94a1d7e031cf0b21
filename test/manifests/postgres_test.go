package manifests

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	corev1 "k8s.io/api/core/v1"

	"example.com/watertight/lab/pgserver"
	"example.com/watertight/test/manifests/chart"
)

// database is a PostgreSQL that the chart's scripts make and start, with this machine's programs in the image's place.
type database struct {
	t       *testing.T
	dir     string
	port    int
	env     []string
	account *syscall.Credential
	secrets map[string]string
	args    []string
}

func newDatabase(t *testing.T, design string) *database {
	t.Helper()
	programs, err := pgserver.DefaultLocator(os.Getenv("PG_BIN"), os.Getenv("PATH")).Find(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	// The sockets' path may not be long, and the server's user must be able to enter the folder.
	dir, err := os.MkdirTemp("/tmp", "pg") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := render(t, chart.Values{"design": design})
	s := &database{t: t, dir: dir, secrets: typed[corev1.Secret](t, r, "Secret")["postgres"].StringData}
	for _, sub := range []string{"config", "run", "volume"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	places := strings.NewReplacer("/etc/watertight/postgres", filepath.Join(dir, "config"), "/run/postgresql", filepath.Join(dir, "run"),
		"peer", "trust") // whoever runs the test need not be called postgres
	for name, content := range typed[corev1.ConfigMap](t, r, "ConfigMap")["postgres"].Data {
		must(t, os.WriteFile(filepath.Join(dir, "config", name), []byte(places.Replace(content)), 0o644))
	}
	for _, p := range pods(t, r) {
		if p.owner == "StatefulSet/postgres" {
			for _, arg := range p.Spec.Containers[0].Args {
				s.args = append(s.args, places.Replace(strings.ReplaceAll(arg, "listen_addresses=*", "listen_addresses=127.0.0.1")))
			}
		}
	}
	s.env = []string{"PATH=" + programs.Bin + ":" + os.Getenv("PATH"), "PGDATA=" + filepath.Join(dir, "volume", "data"), "LC_ALL=C", "TZ=UTC"}
	for name, value := range s.secrets {
		s.env = append(s.env, name+"="+value)
	}
	if os.Geteuid() == 0 {
		s.account = postgresAccount(t)
		must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(s.account.Uid), int(s.account.Gid)))
		}))
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func postgresAccount(t *testing.T) *syscall.Credential {
	t.Helper()
	account, err := user.Lookup("postgres")
	must(t, err)
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	must(t, err)
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	must(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *database) command(script string, args ...string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{filepath.Join(s.dir, "config", script)}, args...)...)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	return cmd
}

// prepare is what the init container does.
func (s *database) prepare() {
	s.t.Helper()
	out, err := s.command("prepare.sh").CombinedOutput()
	if err != nil {
		s.t.Fatalf("prepare.sh: %v\n%s", err, out)
	}
	for _, password := range s.secrets {
		if strings.Contains(string(out), password) {
			s.t.Errorf("a password is in the log:\n%s", out)
		}
	}
}

// serve is what the container does, until the returned function ends it.
func (s *database) serve() (stop func()) {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	s.port = listener.Addr().(*net.TCPAddr).Port
	must(s.t, listener.Close())
	cmd := s.command("serve.sh", append([]string{"-p", strconv.Itoa(s.port)}, s.args...)...)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	must(s.t, cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := <-exited; err != nil && s.t.Failed() {
			s.t.Logf("postgres: %v\n%s", err, log.String())
		}
	}
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := s.connect("checkout", "checkout")
		if conn != nil {
			conn.Close(context.Background())
			return stop
		}
		if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code != "57P03" { // anything but "starting up"
			return stop
		}
		if time.Now().After(deadline) {
			stop()
			s.t.Fatalf("the server does not answer: %v\n%s", err, log.String())
		}
		<-time.After(50 * time.Millisecond)
	}
}

// connect opens a connection over the network, with the role's own password.
func (s *database) connect(role, database string) (*pgx.Conn, error) {
	variable := strings.ToUpper(strings.TrimSuffix(role, "_owner")) + "_PASSWORD"
	if strings.HasSuffix(role, "_owner") {
		variable = strings.ToUpper(role) + "_PASSWORD"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return pgx.Connect(ctx, fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", role, s.secrets[variable], s.port, database))
}

func (s *database) open(role, database string) *pgx.Conn {
	s.t.Helper()
	conn, err := s.connect(role, database)
	if err != nil {
		s.t.Fatalf("%s to %s: %v", role, database, err)
	}
	s.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func TestPostgres_EachRoleReachesItsOwnDatabase(t *testing.T) {
	s := newDatabase(t, "split")
	s.prepare()
	s.prepare() // as at every start
	defer s.serve()()
	services := []string{"checkout", "search", "recs", "inventory", "payment"}
	for _, role := range services {
		for _, database := range append(services, "postgres", "template1") {
			for _, who := range []string{role, role + "_owner"} {
				conn, err := s.connect(who, database)
				if conn != nil {
					conn.Close(context.Background())
				}
				if (err == nil) != (role == database) {
					t.Errorf("%s to the database %s: %v", who, database, err)
				}
			}
		}
	}
	if conn, err := s.connect("postgres", "postgres"); err == nil {
		conn.Close(context.Background())
		t.Error("the superuser can log in over the network")
	}
}

func TestPostgres_ServicesUseRowsAndOwnersMakeTables(t *testing.T) {
	s := newDatabase(t, "split")
	s.prepare()
	defer s.serve()()
	ctx := t.Context()
	owner, service := s.open("recs_owner", "recs"), s.open("recs", "recs")
	_, err := owner.Exec(ctx, `CREATE TABLE things (id bigint GENERATED ALWAYS AS IDENTITY, name text)`)
	must(t, err)
	for statement, allowed := range map[string]bool{
		`INSERT INTO things (name) VALUES ('a')`: true, `UPDATE things SET name = 'b'`: true, `SELECT * FROM things`: true, `DELETE FROM things`: true,
		`CREATE TABLE more (id int)`: false, `DROP TABLE things`: false, `TRUNCATE things`: false, `CREATE TEMP TABLE t (id int)`: false, `ALTER ROLE recs CONNECTION LIMIT -1`: false,
	} {
		if _, err := service.Exec(ctx, statement); (err == nil) != allowed {
			t.Errorf("%s: %v, want it allowed: %v", statement, err, allowed)
		}
	}
	for role, want := range map[string]string{"recs": "30s 5s 30s", "recs_owner": "5min 1min 5min"} {
		var got string
		err := s.open(role, "recs").QueryRow(ctx, `SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'))`).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%s: time-outs %q (%v), want %q", role, got, err, want)
		}
	}
}

// One role cannot use up the server of all.
func TestPostgres_ARoleHasItsShareOfConnections(t *testing.T) {
	s := newDatabase(t, "split")
	s.prepare()
	defer s.serve()()
	const limit = 2 * 2 * (16 + 2 + 4) // one replica, one more for a rollout, and as many that leave
	var refused error
	for opened := range limit + 1 {
		conn, err := s.connect("payment", "payment")
		if err != nil {
			refused = err
			if opened != limit {
				t.Errorf("refused after %d connections, want %d", opened, limit)
			}
			break
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
	}
	if full := new(pgconn.PgError); !errors.As(refused, &full) || full.Code != "53300" {
		t.Errorf("connection %d: %v, want too many connections for the role", limit+1, refused)
	}
	s.open("recs", "recs")
}

func TestPostgres_ASecondServerWaitsForTheFirstOnItsVolume(t *testing.T) {
	s := newDatabase(t, "split")
	s.prepare()
	stop := s.serve()
	second := s.command("prepare.sh")
	must(t, second.Start())
	done := make(chan error, 1)
	go func() { done <- second.Wait() }()
	select {
	case err := <-done:
		t.Errorf("a second pod prepared the volume under a server that runs: %v", err)
		stop()
		return
	case <-time.After(time.Second):
	}
	s.open("checkout", "checkout")
	stop()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Error("the second pod never got its turn")
	}
}

func TestPostgres_TheMonolithHasASchemaForEachService(t *testing.T) {
	s := newDatabase(t, "shared-pool")
	s.prepare()
	stop := s.serve()
	defer stop()
	owner, service := s.open("monolith_owner", "monolith"), s.open("monolith", "monolith")
	for _, schema := range []string{"checkout", "search", "recs", "inventory", "payment"} {
		_, err := owner.Exec(t.Context(), "CREATE TABLE "+schema+".things (id int)")
		must(t, err)
		_, err = service.Exec(t.Context(), "INSERT INTO "+schema+".things VALUES (1)")
		must(t, err)
	}
}
