//go:build unix

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/lab/proc"
)

// superuser is the role that owns the cluster.
const superuser = "postgres"

// Account returns the user that the server runs as: nil, the caller, unless the caller is root, whom PostgreSQL refuses.
func Account() (*proc.Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the caller, as in proc.Account.RunAs
	}
	account, err := proc.LookupAccount("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	return &account, nil
}

// Cluster is a data directory and how to reach the server on it.
type Cluster struct {
	Programs Programs
	RunAs    *proc.Account // nil: the caller
	Home     string        // holds the data directory and the port; private to RunAs
	Password string        // the superuser's
	Port     int
}

func (c *Cluster) data() string     { return filepath.Join(c.Home, "data") }
func (c *Cluster) portFile() string { return filepath.Join(c.Home, "port") }

// DataMajor returns the version that made the data in home; 0 when there are none yet.
func DataMajor(home string) (int, error) {
	content, err := os.ReadFile(filepath.Join(home, "data", "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("PostgreSQL data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("PostgreSQL data: PG_VERSION holds %q", content)
	}
	return major, nil
}

// Prepare makes the data directory unless it exists, and picks the port: the one of the last time if it is still free.
// One that was left half made is made again.
func (c *Cluster) Prepare(ctx context.Context) error {
	if err := c.pickPort(); err != nil {
		return err
	}
	if major, err := DataMajor(c.Home); err != nil || major != 0 {
		return err
	}
	half := filepath.Join(c.Home, "data.new")
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("PostgreSQL data: %w", err)
	}
	if err := c.initdb(ctx, half); err != nil {
		return err
	}
	if err := os.Rename(half, c.data()); err != nil {
		return fmt.Errorf("PostgreSQL data: %w", err)
	}
	return nil
}

func (c *Cluster) initdb(ctx context.Context, dir string) error {
	password := filepath.Join(c.Home, "initdb.password")
	if err := os.WriteFile(password, []byte(c.Password+"\n"), 0o600); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	defer os.Remove(password)
	if c.RunAs != nil {
		if err := os.Chown(password, int(c.RunAs.UID), int(c.RunAs.GID)); err != nil {
			return fmt.Errorf("initdb: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.Programs.Bin, "initdb"), "--pgdata="+dir, "--username="+superuser,
		"--pwfile="+password, "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--data-checksums")
	cmd.Dir, cmd.Env = c.Home, c.Env()
	c.RunAs.RunAs(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(string(out)))
	}
	return nil
}

// Env is the environment of the server's programs: nothing that would change which cluster or port they use.
func (c *Cluster) Env() []string {
	return []string{"PATH=" + c.Programs.Bin + ":/usr/bin:/bin", "HOME=" + c.Home, "LC_ALL=C", "TZ=UTC"}
}

func (c *Cluster) pickPort() error {
	if content, err := os.ReadFile(c.portFile()); err == nil {
		if port, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && portIsFree(port) {
			c.Port = port
			return nil
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("PostgreSQL port: %w", err)
	}
	chosen, err := netip.ParseAddrPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		return fmt.Errorf("PostgreSQL port: %w", err)
	}
	c.Port = int(chosen.Port())
	if err := os.WriteFile(c.portFile(), []byte(strconv.Itoa(c.Port)+"\n"), 0o600); err != nil {
		return fmt.Errorf("PostgreSQL port: %w", err)
	}
	return nil
}

func portIsFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && listener.Close() == nil
}

// Program is the server's program.
func (c *Cluster) Program() string { return filepath.Join(c.Programs.Bin, "postgres") }

// Args are its arguments. Everything that makes a commit durable is on, whatever the defaults of the build. It listens on
// the loopback only, and on no Unix socket, whose path may be too long below a deep folder.
func (c *Cluster) Args(maxConnections int) []string {
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.Port)}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1",
		"unix_socket_directories=",
		"max_connections=" + strconv.Itoa(maxConnections),
		"fsync=on",
		"full_page_writes=on",
		"synchronous_commit=on",
		"password_encryption=scram-sha-256",
		"logging_collector=off",
		"log_destination=stderr",
		"log_line_prefix=%m [%p] %q%u@%d ",
	} {
		args = append(args, "-c", setting)
	}
	return args
}

// Address is where the server listens.
func (c *Cluster) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)) }

// URL is where role reaches database.
func (c *Cluster) URL(role, password, database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", role, password, c.Address(), database)
}

// Admin connects as the superuser.
func (c *Cluster) Admin(ctx context.Context, database string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, c.URL(superuser, c.Password, database))
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return conn, nil
}

// Ready returns nil when the server answers.
func (c *Cluster) Ready(ctx context.Context) (err error) {
	conn, err := c.Admin(ctx, superuser)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

// ClearStaleLock deals with the lock that a killed server left. A server that still runs on these data is ended (its lab
// is gone: nobody watches it); a pid that belongs to something else by now is left in peace and the lock removed, because
// PostgreSQL itself would refuse to start.
func (c *Cluster) ClearStaleLock(ctx context.Context) error {
	path := filepath.Join(c.data(), "postmaster.pid")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("PostgreSQL's lock: %w", err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(string(content), "\n", 2)[0])) // 0 when damaged: no such process
	if id, alive := proc.Identify(pid); alive && c.worksHere(pid) {
		return End(ctx, id)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("PostgreSQL's stale lock: %w", err)
	}
	return nil
}

// worksHere reports whether pid is a server on these data: PostgreSQL's working folder is its data directory.
func (c *Cluster) worksHere(pid int) bool {
	dir, ok := proc.WorkingDir(pid)
	if !ok {
		return false
	}
	here, err := filepath.EvalSymlinks(c.data())
	return err == nil && dir == here
}

// End ends a server that another process started: fast shutdown, then immediate, then by force.
func End(ctx context.Context, server proc.ID) error {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := errors.Join(server.Signal(sig), server.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := server.Wait(wait)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("end PostgreSQL (pid %d): %w", server.PID, ctx.Err())
		}
	}
	return fmt.Errorf("PostgreSQL (pid %d) does not end", server.PID)
}
