//go:build unix

// Package pgserver runs a private PostgreSQL server for the shop: it finds the programs, makes the cluster, says how to
// start it, and gives each service a database and two roles. It touches no server that it did not set up itself.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldest is the oldest major version that the shop is tried with.
const oldest = 14

// Programs is a folder with initdb and postgres in it.
type Programs struct {
	Bin   string
	Major int
}

// Locator looks for PostgreSQL's programs.
type Locator struct {
	PGBin    string   // $PG_BIN: where to look first
	Path     string   // $PATH
	Patterns []string // glob patterns of folders that distributions use
}

// DefaultLocator looks where Debian, Red Hat, Homebrew, MacPorts, Postgres.app and a build from source put them.
func DefaultLocator(pgBin, path string) Locator {
	return Locator{PGBin: pgBin, Path: path, Patterns: []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/opt/local/lib/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin",
	}}
}

// ErrNotFound says that this machine has no PostgreSQL that is new enough.
var ErrNotFound = errors.New("no PostgreSQL server programs (initdb, postgres) found")

// Find returns the programs to use: those of version major (0: any), from $PG_BIN if it is set, else from the PATH, else
// the newest of the distributions' folders.
func (l Locator) Find(ctx context.Context, major int) (Programs, error) {
	if l.PGBin != "" {
		p, err := inspect(ctx, l.PGBin)
		if err != nil {
			return Programs{}, fmt.Errorf("PG_BIN: %w", err)
		}
		return p, fits(p, major)
	}
	for _, dir := range filepath.SplitList(l.Path) {
		if p, err := inspect(ctx, dir); err == nil && fits(p, major) == nil {
			return p, nil
		}
	}
	var found []Programs
	for _, pattern := range l.Patterns {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return Programs{}, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		for _, dir := range dirs {
			if p, err := inspect(ctx, dir); err == nil {
				found = append(found, p)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Programs) int { return b.Major - a.Major })
	for _, p := range found {
		if fits(p, major) == nil {
			return p, nil
		}
	}
	if len(found) > 0 {
		return Programs{}, fits(found[0], major)
	}
	return Programs{}, ErrNotFound
}

// fits returns nil when p is of version major, or of any version that is new enough when major is 0.
func fits(p Programs, major int) error {
	switch {
	case major != 0 && p.Major != major:
		return fmt.Errorf("the data was made by PostgreSQL %d, but %s is %d: install PostgreSQL %d, or give up the data with `lab up --fresh`",
			major, p.Bin, p.Major, major)
	case p.Major < oldest:
		return fmt.Errorf("PostgreSQL %d in %s is too old: %d or newer is needed", p.Major, p.Bin, oldest)
	default:
		return nil
	}
}

// inspect returns the programs in dir. The server refuses to run from a folder without its initdb, and the other way
// round, so both must be there.
func inspect(ctx context.Context, dir string) (Programs, error) {
	for _, name := range []string{"initdb", "postgres"} {
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			return Programs{}, fmt.Errorf("no %s in %s: %w", name, dir, err)
		}
		// A link farm (Homebrew's bin) leads to the folder where both find their libraries.
		if target, err := filepath.EvalSymlinks(path); err == nil && name == "postgres" {
			dir = filepath.Dir(target)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Programs{}, fmt.Errorf("%s/postgres --version: %w", dir, err)
	}
	version := regexp.MustCompile(`\) (\d+)`).FindStringSubmatch(string(out))
	if version == nil {
		return Programs{}, fmt.Errorf("%s/postgres --version says %q", dir, out)
	}
	major, err := strconv.Atoi(version[1])
	return Programs{Bin: dir, Major: major}, err
}

// Install installs PostgreSQL with apt-get. It refuses on anything but Debian and its kin, and when the caller is not
// root; the error then says in one line what to install.
func Install(ctx context.Context, env []string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("%w: %s, or set PG_BIN to the folder that holds them", ErrNotFound, advice(err == nil))
	}
	for _, args := range [][]string{{"update", "-q"}, {"install", "-q", "-y", "--no-install-recommends", "postgresql"}} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(slices.Clone(env), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(string(out)))
		}
	}
	return nil
}

func advice(hasApt bool) string {
	switch {
	case hasApt:
		return "run `sudo apt-get install postgresql`"
	case runtime.GOOS == "darwin":
		return "run `brew install postgresql@17`"
	default:
		return "install your system's PostgreSQL server package (postgresql-server)"
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
