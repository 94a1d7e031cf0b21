// Package pgtest gives tests a real PostgreSQL: a fresh database each, on a cluster that the first test of a binary
// starts and that ends with the binary, however that ends. It is for tests only and refuses to be careful with data.
//
// TEST_DATABASE_URL, when set, names a server to use instead, with a role that may create databases and roles. Else the
// server's programs come from PG_BIN, the PATH, or the folders where distributions put them.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shared is the cluster that all tests of a binary use. It is package state because nothing smaller lives as long as the
// binary does: a test's own resources end with the test.
var shared = sync.OnceValues(startCluster) //nolint:gochecknoglobals // see above

// New returns the URL of an empty database that is dropped when the test ends. Its role owns it.
func New(t testing.TB) string {
	t.Helper()
	_, owner := NewRoles(t)
	return owner
}

// NewRoles is New with two roles, as a service has them in production: owner owns the database and makes tables; app may
// only read and change rows in them.
func NewRoles(t testing.TB) (app, owner string) {
	t.Helper()
	return newDatabase(t, adminURL(t))
}

func adminURL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("TEST_DATABASE_URL"); given != "" {
		return given
	}
	c, err := shared()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return c.adminURL()
}

// A Server is a cluster of the test's own, for tests that take it down.
type Server struct {
	t testing.TB
	c *cluster
}

// NewServer starts a cluster that ends with the test.
func NewServer(t testing.TB) *Server {
	t.Helper()
	c, err := startCluster()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(c.close)
	return &Server{t: t, c: c}
}

// New is like the function New, on this server.
func (s *Server) New() string {
	s.t.Helper()
	_, owner := newDatabase(s.t, s.c.adminURL())
	return owner
}

// AdminURL is the URL of a superuser.
func (s *Server) AdminURL() string { return s.c.adminURL() }

// Stop shuts the server down and waits for it: open sessions are cut, and new ones refused.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.c.stop(); err != nil {
		s.t.Fatalf("pgtest: stop: %v", err)
	}
}

// Start brings a stopped server back at the same address, with its data.
func (s *Server) Start() {
	s.t.Helper()
	if err := s.c.start(); err != nil {
		s.t.Fatalf("pgtest: start: %v", err)
	}
}

func newDatabase(t testing.TB, admin string) (app, owner string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	name, password := "t_"+strings.ToLower(rand.Text()[:16]), rand.Text()
	run := func(url string, statements ...string) {
		t.Helper()
		if err := execute(ctx, url, statements...); err != nil {
			t.Fatalf("pgtest: create database: %v", err)
		}
	}
	run(admin,
		fmt.Sprintf("CREATE ROLE %s_owner LOGIN PASSWORD '%s'", name, password),
		fmt.Sprintf("CREATE ROLE %s_app LOGIN PASSWORD '%s'", name, password),
		// A role that is no superuser may only give a database to a role that it is a member of.
		fmt.Sprintf("GRANT %s_owner TO current_user", name),
		fmt.Sprintf("CREATE DATABASE %[1]s OWNER %[1]s_owner", name),
		fmt.Sprintf("REVOKE ALL ON DATABASE %s FROM PUBLIC", name),
		fmt.Sprintf("GRANT CONNECT ON DATABASE %[1]s TO %[1]s_app", name),
	)
	t.Cleanup(func() { dropDatabase(t, admin, name) })
	app, owner = withDatabase(t, admin, name, name+"_app", password), withDatabase(t, admin, name, name+"_owner", password)
	run(owner,
		fmt.Sprintf("ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO %s_app", name),
		fmt.Sprintf("ALTER DEFAULT PRIVILEGES GRANT USAGE, SELECT ON SEQUENCES TO %s_app", name),
	)
	return app, owner
}

// dropDatabase fails quietly when the test has left its server stopped: that server's data goes as a whole.
func dropDatabase(t testing.TB, admin, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := execute(ctx, admin,
		fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name),
		fmt.Sprintf("DROP ROLE %s_app", name),
		fmt.Sprintf("DROP ROLE %s_owner", name))
	if err != nil {
		t.Logf("pgtest: drop database: %v", err)
	}
}

func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// withDatabase returns admin's URL for another database and role.
func withDatabase(t testing.TB, admin, database, role, password string) string {
	t.Helper()
	u, err := url.Parse(admin)
	if err != nil || u.Scheme == "" {
		t.Fatal("pgtest: TEST_DATABASE_URL is not a postgres:// URL")
	}
	u.Path = "/" + database
	u.User = url.UserPassword(role, password)
	return u.String()
}
