package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/watertight/platform/postgres/pgtest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestNew_EachDatabaseIsEmptyAndItsOwn(t *testing.T) {
	first, second := connect(t, pgtest.New(t)), connect(t, pgtest.New(t))
	exec1(t, first, "CREATE TABLE a (id int)")
	exec1(t, second, "CREATE TABLE a (id int)")
}

func TestNewRoles_TheAppChangesRowsAndMakesNoTables(t *testing.T) {
	appURL, ownerURL := pgtest.NewRoles(t)
	exec1(t, connect(t, ownerURL), "CREATE TABLE a (id bigint GENERATED ALWAYS AS IDENTITY, v int)")
	app := connect(t, appURL)
	exec1(t, app, "INSERT INTO a (v) VALUES (1)")
	for _, forbidden := range []string{"CREATE TABLE b (id int)", "DROP TABLE a", "TRUNCATE a", "CREATE TEMP TABLE c (id int)"} {
		_, err := app.Exec(t.Context(), forbidden)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "42501" {
			t.Errorf("%s: got %v, want insufficient privilege (42501)", forbidden, err)
		}
	}
}

func TestServer_StopsAndComesBackWithItsData(t *testing.T) {
	server := pgtest.NewServer(t)
	url := server.New()
	exec1(t, connect(t, url), "CREATE TABLE a (id int)")
	server.Stop()
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Fatal("connected to a stopped server")
	}
	server.Start()
	exec1(t, connect(t, url), "INSERT INTO a VALUES (1)")
}

// TestServer_EndsWithAKilledBinary runs this test binary again as a child, which starts a server, and kills it.
func TestServer_EndsWithAKilledBinary(t *testing.T) {
	if os.Getenv("PGTEST_CHILD") != "" {
		os.Stdout.WriteString(pgtest.NewServer(t).AdminURL() + "\n")
		select {}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServer_EndsWithAKilledBinary$")
	child.Env = append(os.Environ(), "PGTEST_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, _, err := bufio.NewReader(out).ReadLine()
	if err != nil {
		t.Fatalf("read the child's server URL: %v", err)
	}
	admin, err := url.Parse(string(line))
	if err != nil {
		t.Fatal(err)
	}
	connect(t, string(line))
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed, as meant

	dir := admin.Query().Get("host")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server's folder %s is still there", dir)
		}
	}
}
