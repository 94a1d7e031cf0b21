// Package servers starts the servers that parts of the benchmarks share.
package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"

	"example.com/watertight/lab/pgserver"
	"example.com/watertight/lab/proc"
	"example.com/watertight/platform/config"
)

// StartBound is how long a server may take to start.
const StartBound = time.Minute

// Servers are a PostgreSQL and a NATS server set up as the shop's own: a commit and an acknowledgement both wait for the disk.
// NATS runs inside this process.
type Servers struct {
	Cluster *pgserver.Cluster
	NATS    string // URL
	Dir     string
	ends    []func() error // in the order of the starts
}

// Start starts both and waits until they answer. PG_BIN of environ says where PostgreSQL's programs are, if not on the PATH.
func Start(ctx context.Context, environ []string) (s *Servers, err error) {
	// The temporary folder is where PostgreSQL's user can go, when this one is root.
	dir, err := os.MkdirTemp("", "watertight-bench-")
	if err != nil {
		return nil, err
	}
	s = &Servers{Dir: dir, ends: []func() error{func() error { return os.RemoveAll(dir) }}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := s.startPostgres(ctx, environ); err != nil {
		return nil, err
	}
	return s, s.startNATS()
}

func (s *Servers) startPostgres(ctx context.Context, environ []string) error {
	paths, err := config.Load[struct {
		Bin  string `env:"PG_BIN"`
		Path string `env:"PATH"`
	}](environ)
	if err != nil {
		return err
	}
	programs, err := pgserver.DefaultLocator(paths.Bin, paths.Path).Find(ctx, 0)
	if err != nil {
		return err
	}
	account, err := pgserver.Account()
	if err != nil {
		return err
	}
	if err := os.Chmod(s.Dir, 0o711); err != nil { //nolint:gosec // the server's user, another one when this one is root, passes through it
		return err
	}
	home, err := pgserver.Home(ctx, programs, account, filepath.Join(s.Dir, "postgres"), "")
	if err != nil {
		return err
	}
	s.Cluster = &pgserver.Cluster{Programs: programs, RunAs: account, Home: home, Password: rand.Text()}
	if err := s.Cluster.Prepare(ctx); err != nil {
		return err
	}
	postgres := exec.CommandContext(context.WithoutCancel(ctx), s.Cluster.Program(), s.Cluster.Args(100)...)
	postgres.Dir, postgres.Env = home, s.Cluster.Env()
	account.RunAs(postgres)
	starter := proc.NewStarter()
	if err := starter.Start(postgres, syscall.SIGQUIT); err != nil {
		return err
	}
	s.ends = append(s.ends, func() error {
		defer starter.Close()
		return errors.Join(postgres.Process.Signal(syscall.SIGINT), postgres.Wait())
	})
	return Await(ctx, StartBound, s.Cluster.Ready)
}

func (s *Servers) startNATS() error {
	broker, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, SyncAlways: true, StoreDir: filepath.Join(s.Dir, "nats"), NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	broker.Start()
	s.ends = append(s.ends, func() error { broker.Shutdown(); broker.WaitForShutdown(); return nil })
	if !broker.ReadyForConnections(StartBound) {
		return errors.New("the NATS server is not ready")
	}
	s.NATS = broker.ClientURL()
	return nil
}

// Stop ends what was started, the last first, and removes all files.
func (s *Servers) Stop() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// Create makes a database, as a copy of template.
func (s *Servers) Create(ctx context.Context, name, template string) error {
	return s.Execute(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+template)
}

// URL returns the connection string of a database, as the superuser.
func (s *Servers) URL(database string) string {
	return s.Cluster.URL("postgres", s.Cluster.Password, database)
}

// Execute runs each text of one or more statements.
func (s *Servers) Execute(ctx context.Context, database string, statements ...string) error {
	conn, err := s.Cluster.Admin(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, text := range statements {
		if _, err := conn.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// Await repeats try until it returns nil, and returns its last error when that takes too long.
func Await(ctx context.Context, bound time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", bound, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
