package main

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

// startBound is how long a server may take to start.
const startBound = time.Minute

// servers are a PostgreSQL and a NATS server set up as the shop's own: a commit and an acknowledgement both wait for the disk.
// NATS runs inside this process.
type servers struct {
	cluster *pgserver.Cluster
	nats    string // URL
	dir     string
	ends    []func() error // in the order of the starts
}

func startServers(ctx context.Context, environ []string) (s *servers, err error) {
	// The temporary folder is where PostgreSQL's user can go, when this one is root.
	dir, err := os.MkdirTemp("", "watertight-bench-")
	if err != nil {
		return nil, err
	}
	s = &servers{dir: dir, ends: []func() error{func() error { return os.RemoveAll(dir) }}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := s.startPostgres(ctx, environ); err != nil {
		return nil, err
	}
	return s, s.startNATS()
}

func (s *servers) startPostgres(ctx context.Context, environ []string) error {
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
	if err := os.Chmod(s.dir, 0o711); err != nil { //nolint:gosec // the server's user, another one when this one is root, passes through it
		return err
	}
	home, err := pgserver.Home(ctx, programs, account, filepath.Join(s.dir, "postgres"), "")
	if err != nil {
		return err
	}
	s.cluster = &pgserver.Cluster{Programs: programs, RunAs: account, Home: home, Password: rand.Text()}
	if err := s.cluster.Prepare(ctx); err != nil {
		return err
	}
	postgres := exec.CommandContext(context.WithoutCancel(ctx), s.cluster.Program(), s.cluster.Args(100)...)
	postgres.Dir, postgres.Env = home, s.cluster.Env()
	account.RunAs(postgres)
	starter := proc.NewStarter()
	if err := starter.Start(postgres, syscall.SIGQUIT); err != nil {
		return err
	}
	s.ends = append(s.ends, func() error {
		defer starter.Close()
		return errors.Join(postgres.Process.Signal(syscall.SIGINT), postgres.Wait())
	})
	return await(ctx, startBound, s.cluster.Ready)
}

func (s *servers) startNATS() error {
	broker, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, SyncAlways: true, StoreDir: filepath.Join(s.dir, "nats"), NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	broker.Start()
	s.ends = append(s.ends, func() error { broker.Shutdown(); broker.WaitForShutdown(); return nil })
	if !broker.ReadyForConnections(startBound) {
		return errors.New("the NATS server is not ready")
	}
	s.nats = broker.ClientURL()
	return nil
}

// stop ends what was started, the last first, and removes all files.
func (s *servers) stop() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// create makes a database, as a copy of template.
func (s *servers) create(ctx context.Context, name, template string) error {
	return s.execute(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+template)
}

func (s *servers) url(database string) string {
	return s.cluster.URL("postgres", s.cluster.Password, database)
}

// execute runs each text of one or more statements.
func (s *servers) execute(ctx context.Context, database string, statements ...string) error {
	conn, err := s.cluster.Admin(ctx, database)
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

// await repeats try until it returns nil, and returns its last error when that takes too long.
func await(ctx context.Context, bound time.Duration, try func(context.Context) error) error {
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
