//go:build unix

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/watertight/lab/proc"
)

// newCluster makes a cluster in a folder that every user may enter, as the state folder is.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("makes a PostgreSQL cluster")
	}
	programs, err := DefaultLocator(os.Getenv("PG_BIN"), os.Getenv("PATH")).Find(t.Context(), 0)
	if err != nil {
		t.Skip(err)
	}
	account, err := Account()
	if err != nil {
		t.Fatal(err)
	}
	home, err := Home(t.Context(), programs, account, filepath.Join(reachableDir(t), "postgres"), "")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Programs: programs, RunAs: account, Home: home, Password: "superuser0"}
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// reachableDir is a temporary folder below the system's own, which testing's is not for other users.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgserver") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// serve starts the server and returns its process; the test's end ends it.
func serve(t *testing.T, c *Cluster, maxConnections int) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), c.Program(), c.Args(maxConnections)...)
	cmd.Dir, cmd.Env = c.Home, c.Env()
	c.RunAs.RunAs(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		id, alive := proc.Identify(cmd.Process.Pid)
		if alive {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := End(ctx, id); err != nil {
				t.Error(err)
			}
		}
		_ = cmd.Wait()
	})
	awaitReady(t, c)
	return cmd
}

func awaitReady(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for c.Ready(ctx) != nil {
		select {
		case <-ctx.Done():
			t.Fatal("the server is not ready")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func tenants() []Tenant {
	var out []Tenant
	for _, name := range []string{"checkout", "search"} {
		out = append(out, Tenant{Service: name, Password: name + "0", OwnerPassword: name + "1", Connections: 4, OwnerConnections: 2})
	}
	return out
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// refused fails the test unless err is the server's with one of the codes.
func refused(t *testing.T, what string, err error, codes ...string) {
	t.Helper()
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && slices.Contains(codes, pg.Code) {
		return
	}
	t.Errorf("%s: got %v, want SQLSTATE %v", what, err, codes)
}

const (
	noPrivilege = "42501"
	tooMany     = "53300"
	badPassword = "28P01"
)

func TestCluster_GivesEachServiceItsRowsAndNothingElse(t *testing.T) {
	c := newCluster(t)
	serve(t, c, MaxConnections(tenants()))
	for range 2 { // provisioning is repeated at each start
		if err := c.Provision(t.Context(), tenants()); err != nil {
			t.Fatal(err)
		}
	}
	owner := connect(t, c.URL("checkout_owner", "checkout1", "checkout"))
	for _, statement := range []string{
		`CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)`,
		`CREATE SEQUENCE numbers`,
	} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatalf("the owner cannot migrate: %v", err)
		}
	}
	service := connect(t, c.URL("checkout", "checkout0", "checkout"))
	for _, statement := range []string{
		`INSERT INTO orders (note) VALUES ('a')`, `UPDATE orders SET note = 'b'`, `SELECT * FROM orders`,
		`DELETE FROM orders`, `SELECT nextval('numbers')`, `BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE; COMMIT`,
	} {
		if _, err := service.Exec(t.Context(), statement); err != nil {
			t.Errorf("the service cannot %s: %v", statement, err)
		}
	}
	for _, statement := range []string{
		`CREATE TABLE mine ()`, `DROP TABLE orders`, `ALTER TABLE orders ADD x int`, `TRUNCATE orders`,
		`CREATE SCHEMA mine`, `CREATE DATABASE mine`, `CREATE ROLE mine`, `CREATE TEMP TABLE mine ()`, `SET ROLE checkout_owner`,
		`SELECT pg_read_file('PG_VERSION')`,
	} {
		_, err := service.Exec(t.Context(), statement)
		refused(t, "the service: "+statement, err, noPrivilege)
	}
	for _, url := range []string{
		c.URL("search", "search0", "checkout"), c.URL("search_owner", "search1", "checkout"),
		c.URL("checkout", "checkout0", "search"), c.URL("checkout", "checkout0", "postgres"), c.URL("checkout", "checkout0", "template1"),
	} {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		refused(t, "a foreign database", err, noPrivilege)
	}
	_, err := pgx.Connect(t.Context(), c.URL("checkout", "wrong", "checkout"))
	refused(t, "a wrong password", err, badPassword)
}

func TestCluster_GivesServicesOfOneDatabaseASchemaEach(t *testing.T) {
	c := newCluster(t)
	both := []Tenant{{Service: "monolith", Password: "m0", OwnerPassword: "m1", Schemas: []string{"checkout", "inventory"}, Connections: 4, OwnerConnections: 2}}
	serve(t, c, MaxConnections(both))
	for range 2 {
		if err := c.Provision(t.Context(), both); err != nil {
			t.Fatal(err)
		}
	}
	owner, service := c.URL("monolith_owner", "m1", "monolith"), c.URL("monolith", "m0", "monolith")
	for _, schema := range both[0].Schemas {
		path := func(url string) string {
			parsed, err := neturl.Parse(url)
			if err != nil {
				t.Fatal(err)
			}
			query := parsed.Query()
			query.Set("search_path", schema)
			parsed.RawQuery = query.Encode()
			return parsed.String()
		}
		if _, err := connect(t, path(owner)).Exec(t.Context(), `CREATE TABLE outbox (note text)`); err != nil {
			t.Fatalf("the owner cannot migrate %s: %v", schema, err)
		}
		if _, err := connect(t, path(service)).Exec(t.Context(), `INSERT INTO outbox VALUES ('a')`); err != nil {
			t.Errorf("the service cannot write in %s: %v", schema, err)
		}
	}
	var rows int
	everywhere := `SELECT (SELECT count(*) FROM checkout.outbox) + (SELECT count(*) FROM inventory.outbox)`
	if err := connect(t, service).QueryRow(t.Context(), everywhere).Scan(&rows); err != nil || rows != 2 {
		t.Errorf("one statement over both: %d rows, %v; want 2", rows, err)
	}
	_, err := connect(t, service).Exec(t.Context(), `CREATE TABLE inventory.mine ()`)
	refused(t, "the service: CREATE TABLE", err, noPrivilege)
}

func TestCluster_LimitsWhatARoleMayHold(t *testing.T) {
	c := newCluster(t)
	serve(t, c, MaxConnections(tenants()))
	if err := c.Provision(t.Context(), tenants()); err != nil {
		t.Fatal(err)
	}
	var first *pgx.Conn
	for range tenants()[0].Connections {
		first = connect(t, c.URL("checkout", "checkout0", "checkout"))
	}
	_, err := pgx.Connect(t.Context(), c.URL("checkout", "checkout0", "checkout"))
	refused(t, "one connection too many", err, tooMany)
	connect(t, c.URL("search", "search0", "search")) // the others still have theirs

	for setting, want := range map[string]string{
		"statement_timeout": "30s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "30s",
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "127.0.0.1",
	} {
		var got string
		if err := first.QueryRow(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %q (%v), want %q", setting, got, err, want)
		}
	}
}

func TestCluster_LimitsNothingWhereItIsToldSoAndAgainWhenItIsNot(t *testing.T) {
	c := newCluster(t)
	serve(t, c, MaxConnections(tenants()))
	limited, free := tenants(), tenants()
	for i := range free {
		free[i].Unlimited = true
	}
	if got, want := MaxConnections(free), MaxConnections(limited); got != want {
		t.Errorf("max_connections without limits: got %d, want %d as with them", got, want)
	}
	type held struct {
		Connections int
		Times       []string
	}
	with := held{4, []string{"idle_in_transaction_session_timeout=30000ms", "lock_timeout=5000ms", "statement_timeout=30000ms"}}
	for _, step := range []struct {
		tenants []Tenant
		want    held
	}{{limited, with}, {free, held{-1, nil}}, {limited, with}} {
		if err := c.Provision(t.Context(), step.tenants); err != nil {
			t.Fatal(err)
		}
		admin, err := c.Admin(t.Context(), superuser)
		if err != nil {
			t.Fatal(err)
		}
		var got held
		err = admin.QueryRow(t.Context(), `SELECT rolconnlimit, ARRAY(SELECT unnest(rolconfig) ORDER BY 1) FROM pg_roles WHERE rolname = 'checkout'`).Scan(&got.Connections, &got.Times)
		if err := errors.Join(err, admin.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got.Connections != step.want.Connections || !slices.Equal(got.Times, step.want.Times) {
			t.Errorf("unlimited %v: got %+v, want %+v", step.tenants[0].Unlimited, got, step.want)
		}
	}
}

func TestCluster_KeepsItsDataAndPort(t *testing.T) {
	c := newCluster(t)
	server := serve(t, c, 30)
	if err := c.Provision(t.Context(), tenants()); err != nil {
		t.Fatal(err)
	}
	owner := connect(t, c.URL("checkout_owner", "checkout1", "checkout"))
	if _, err := owner.Exec(t.Context(), `CREATE TABLE kept AS SELECT 42 AS x`); err != nil {
		t.Fatal(err)
	}
	id, _ := proc.Identify(server.Process.Pid)
	if err := End(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()

	again := &Cluster{Programs: c.Programs, RunAs: c.RunAs, Home: c.Home, Password: c.Password}
	if err := again.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again.Port != c.Port {
		t.Errorf("port: got %d, want %d", again.Port, c.Port)
	}
	serve(t, again, 30)
	var got int
	if err := connect(t, again.URL("checkout", "checkout0", "checkout")).QueryRow(t.Context(), `SELECT x FROM kept`).Scan(&got); err != nil || got != 42 {
		t.Errorf("got %d (%v), want 42", got, err)
	}
}

func TestCluster_TakesAnotherPortWhenItsOwnIsTaken(t *testing.T) {
	c := newCluster(t)
	listener, err := net.Listen("tcp", c.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	before := c.Port
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Port == before {
		t.Errorf("port %d is taken and was chosen", before)
	}
}

func TestCluster_MakesDataThatWereLeftHalfMadeAgain(t *testing.T) {
	c := newCluster(t)
	if err := os.Rename(c.data(), filepath.Join(c.Home, "data.new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(c.Home, "data.new", "PG_VERSION")); err != nil {
		t.Fatal(err)
	}
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	serve(t, c, 30)
}

func TestClearStaleLock_LeavesAForeignProcessAlone(t *testing.T) {
	c := newCluster(t)
	foreign := exec.CommandContext(t.Context(), "/bin/sleep", "60")
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Process.Kill(); _ = foreign.Wait() }()
	lock := fmt.Sprintf("%d\n%s\n1\n5432\n", foreign.Process.Pid, c.data())
	if err := os.WriteFile(filepath.Join(c.data(), "postmaster.pid"), []byte(lock), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.ClearStaleLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, alive := proc.Identify(foreign.Process.Pid); !alive {
		t.Error("a process that is not PostgreSQL was ended")
	}
	serve(t, c, 30) // it would refuse with the lock in place
}

func TestClearStaleLock_EndsAServerThatNobodyWatches(t *testing.T) {
	c := newCluster(t)
	server := serve(t, c, 30)
	if err := c.ClearStaleLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, alive := proc.Identify(server.Process.Pid); alive {
		t.Error("the server still runs")
	}
	_ = server.Wait()
	serve(t, c, 30)
}

func TestHome_GoesElsewhereWhenTheServersUserCannotEnter(t *testing.T) {
	account, err := Account()
	if err != nil {
		t.Fatal(err)
	}
	if account == nil {
		t.Skip("only root runs the server as another user")
	}
	programs, err := DefaultLocator(os.Getenv("PG_BIN"), os.Getenv("PATH")).Find(t.Context(), 0)
	if err != nil {
		t.Skip(err)
	}
	private := filepath.Join(reachableDir(t), "root")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	preferred := filepath.Join(private, "state", "postgres")
	home, err := Home(t.Context(), programs, account, preferred, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := RemoveElsewhere(preferred); err != nil {
			t.Error(err)
		}
	})
	if home == preferred || strings.HasPrefix(home, private) {
		t.Fatalf("got %s, which user %s cannot enter", home, account.Name)
	}
	if _, err := os.Stat(preferred); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder that nobody uses was left: %v", err)
	}
	if again, err := Home(t.Context(), programs, account, preferred, home); err != nil || again != home {
		t.Errorf("a second time: got %s (%v), want %s", again, err, home)
	}
	// Without its record the state folder is a new one: what an older one of this path left is of no use to it.
	if err := os.WriteFile(filepath.Join(home, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Home(t.Context(), programs, account, preferred, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(home, "old")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data of a state folder that is gone were kept: %v", err)
	}
}

func TestHome_RefusesAFolderOfSomebodyElse(t *testing.T) {
	account, err := Account()
	if err != nil {
		t.Fatal(err)
	}
	if account == nil {
		t.Skip("only root can make a folder of another user")
	}
	preferred := filepath.Join(reachableDir(t), "postgres")
	if err := os.Mkdir(preferred, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeHome(t.Context(), Programs{}, account, preferred); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("got %v, want an error about the owner", err)
	}
}
