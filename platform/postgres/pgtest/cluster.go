package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// watch runs the server ($@) as its child and stops it when standard input says how, by a signal's name, or ends without
// a word. Standard input is a pipe whose other end only the test binary holds: however the binary ends, kill -9
// included, the server ends too, and takes its files ($0) along.
const watch = `"$@" </dev/null & pid=$!
read -r how
kill -"${how:-QUIT}" "$pid"
wait "$pid"
test -n "$how" || rm -rf "$0"`

// startBound is how long making a cluster and starting its server may each take.
const startBound = 60 * time.Second

type cluster struct {
	bin    string
	dir    string
	attr   *syscall.SysProcAttr
	server *exec.Cmd
	stdin  io.WriteCloser
}

func startCluster() (*cluster, error) {
	bin, err := findServer()
	if err != nil {
		return nil, err
	}
	attr, owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	// Not TempDir of a test: the path of a socket may not exceed about 100 bytes.
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	c := &cluster{bin: bin, dir: dir, attr: attr}
	if err := c.create(owner); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *cluster) create(owner int) error {
	if err := os.Chown(c.dir, owner, -1); err != nil {
		return fmt.Errorf("give data folder to the server's user: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	initdb := exec.CommandContext(ctx, filepath.Join(c.bin, "initdb"), "--pgdata", c.data(), "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	initdb.SysProcAttr, initdb.Dir = c.attr, c.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// start runs the server and waits until it takes connections.
func (c *cluster) start() error {
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open server log: %w", err)
	}
	defer func() { _ = log.Close() }()                                                 // the server holds its own
	c.server = exec.CommandContext(context.Background(), "/bin/sh", c.serverArgs()...) // the watch ends it, not a context
	c.server.SysProcAttr, c.server.Dir, c.server.Stdout, c.server.Stderr = c.attr, c.dir, log, log
	if c.stdin, err = c.server.StdinPipe(); err != nil {
		return fmt.Errorf("pipe to the server's watch: %w", err)
	}
	if err := c.server.Start(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	if err := c.waitReady(); err != nil {
		text, _ := os.ReadFile(c.log()) // only adds to the error
		return fmt.Errorf("server did not start: %w\n%s", errors.Join(err, c.stop()), bytes.TrimSpace(text))
	}
	return nil
}

// serverArgs are the watch and the server with its settings, which trade every safety of the data for speed, and make it
// listen on a socket in the cluster's own folder only.
func (c *cluster) serverArgs() []string {
	args := []string{"-c", watch, c.dir, filepath.Join(c.bin, "postgres"), "-D", c.data(), "-k", c.dir}
	for _, setting := range []string{
		"fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200", "shared_buffers=32MB",
		"listen_addresses=", "unix_socket_permissions=0777", "log_min_messages=fatal", "timezone=UTC",
	} {
		args = append(args, "-c", setting)
	}
	return args
}

func (c *cluster) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.adminURL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server by a fast shutdown and keeps its files. It does nothing to a stopped one.
func (c *cluster) stop() error {
	if c.server == nil {
		return nil
	}
	_, err := io.WriteString(c.stdin, "INT\n")
	server := c.server
	c.server = nil
	return errors.Join(err, server.Wait())
}

// close ends the server, if it runs, and removes its files.
func (c *cluster) close() {
	if c.server != nil {
		_ = c.stdin.Close() // tells the watch to end it
		_ = c.server.Wait() // it ends by a signal, which is no news
	}
	_ = os.RemoveAll(c.dir) // what the watch has left, for a server that was stopped before
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }
func (c *cluster) log() string  { return filepath.Join(c.dir, "log") }

func (c *cluster) adminURL() string {
	return "postgres://postgres@/postgres?host=" + url.QueryEscape(c.dir)
}

// unprivileged returns how to run the server, which refuses to run as root, and the id of the user it runs as.
func unprivileged() (*syscall.SysProcAttr, int, error) {
	// A session of its own, so that an interrupt from the keyboard reaches the tests and not the server.
	attr := &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() != 0 {
		return attr, os.Geteuid(), nil
	}
	var account *user.User
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			account = found
			break
		}
	}
	if account == nil {
		return nil, 0, errors.New("running as root, and there is no user postgres or nobody to run the server as")
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return nil, 0, fmt.Errorf("user id of %s: %w", account.Username, err)
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		return nil, 0, fmt.Errorf("group id of %s: %w", account.Username, err)
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, uid, nil
}

// findServer returns the folder that holds postgres and initdb.
func findServer() (string, error) {
	var folders []string
	if given := os.Getenv("PG_BIN"); given != "" {
		folders = append(folders, given)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if program, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(program))
		}
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"} {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		slices.Reverse(found)              // newest first
		folders = append(folders, found...)
	}
	for _, dir := range folders {
		if executable(filepath.Join(dir, "postgres")) && executable(filepath.Join(dir, "initdb")) {
			return dir, nil
		}
	}
	return "", errors.New("no PostgreSQL found: install it, or set PG_BIN to the folder of postgres and initdb, or TEST_DATABASE_URL to a server")
}

func executable(path string) bool {
	info, err := os.Stat(path) //nolint:gosec // PG_BIN is set by who runs the tests
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}
