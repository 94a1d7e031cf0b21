//go:build unix

// Package statedir is the folder in which `lab up` keeps everything that outlives it: data, programs, logs, passwords,
// and the record of the instance that runs. It removes only what it made itself.
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// DefaultName is the state folder's name in the project's root.
const DefaultName = ".watertight"

// FindRoot returns the project's root: from, or the first folder above it, that holds a go.work file.
func FindRoot(from string) (string, error) {
	from, err := filepath.Abs(from)
	if err != nil {
		return "", fmt.Errorf("find the project: %w", err)
	}
	for dir := from; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(filepath.Join(dir, "go.work")); err == nil && info.Mode().IsRegular() {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.work in %s or above it: run lab inside the project", from)
		}
	}
}

// Dir is a state folder.
type Dir struct{ path string }

// At names a state folder without making it.
func At(path string) Dir { return Dir{path: path} }

// Create makes the folder. It can be entered by everybody, because PostgreSQL may run as another user below it; what is
// secret in it is readable by its owner only.
//
//nolint:gosec // 0755 on purpose, see above
func (d Dir) Create() error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	// Files of two users in one folder would lock out one of them later, at a less obvious place.
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to the user with id %d: run lab as that user, or name another folder with --dir", d.path, stat.Uid)
	}
	if err := os.Chmod(d.path, 0o755); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	for _, dir := range []string{d.Bin(), d.Logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("state folder: %w", err)
		}
	}
	return nil
}

// Path is the folder itself.
func (d Dir) Path() string { return d.path }

// Bin holds the programs that were built.
func (d Dir) Bin() string { return filepath.Join(d.path, "bin") }

// Logs holds one file for each process.
func (d Dir) Logs() string { return filepath.Join(d.path, "logs") }

// Log is the log of a detached `lab up`, with everything that an attached one would show.
func (d Dir) Log() string { return filepath.Join(d.path, "lab.log") }

// NATS holds the broker's configuration and files.
func (d Dir) NATS() string { return filepath.Join(d.path, "nats") }

// Postgres holds the database server's files, unless its user cannot reach it.
func (d Dir) Postgres() string { return filepath.Join(d.path, "postgres") }

func (d Dir) lockFile() string     { return filepath.Join(d.path, "lock") }
func (d Dir) instanceFile() string { return filepath.Join(d.path, "instance.json") }
func (d Dir) secretsFile() string  { return filepath.Join(d.path, "secrets.json") }
func (d Dir) seedsFolder() string  { return filepath.Join(d.path, "seeds") }
func (d Dir) homeFile() string     { return filepath.Join(d.path, "postgres.home") }

// Empty removes the shop's data, so that the next start is a first start. Programs and logs stay. The caller holds the
// lock and has removed database files that lie elsewhere.
func (d Dir) Empty() error {
	for _, path := range []string{d.NATS(), d.Postgres(), d.homeFile(), d.secretsFile(), d.seedsFolder()} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("empty the state folder: %w", err)
		}
	}
	return nil
}

// Seeded reports what the shop's data of that name were seeded with; "" when they were not.
func (d Dir) Seeded(data string) (string, error) {
	return readLine(filepath.Join(d.seedsFolder(), data))
}

// SetSeeded records what the shop's data of that name were seeded with.
func (d Dir) SetSeeded(data, with string) error {
	if err := os.MkdirAll(d.seedsFolder(), 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return writeFile(filepath.Join(d.seedsFolder(), data), []byte(with+"\n"))
}

// PostgresHome returns where the database server's files were put; "" at first.
func (d Dir) PostgresHome() (string, error) { return readLine(d.homeFile()) }

// SetPostgresHome records where the database server's files were put.
func (d Dir) SetPostgresHome(home string) error { return writeFile(d.homeFile(), []byte(home+"\n")) }

// readLine returns the content of a file of one line; "" when there is no such file.
func readLine(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("state folder: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Lock is held by the `lab up` that uses the folder. The kernel gives it back when that process ends, however it ends.
type Lock struct{ file *os.File }

// LockedError says that another process holds the lock.
type LockedError struct {
	Dir string
	PID int // 0: unknown
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("a shop runs in %s already (pid %d); `lab down` ends it, `lab ps` shows it", e.Dir, e.PID)
}

// Lock takes the lock or returns a *LockedError at once.
func (d Dir) Lock() (*Lock, error) {
	file, err := os.OpenFile(d.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			content, _ := os.ReadFile(d.lockFile()) // only makes the message better
			pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
			return nil, &LockedError{Dir: d.path, PID: pid}
		}
		return nil, fmt.Errorf("lock %s: %w", d.lockFile(), err)
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", d.lockFile(), err), file.Close())
	}
	return &Lock{file: file}, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// Unlock gives the lock back.
func (l *Lock) Unlock() error { return l.file.Close() }

// writeFile replaces a file in one step, readable by its owner only.
func writeFile(path string, content []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
	}
	return nil
}

func writeJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, append(content, '\n'))
}

// readJSON leaves v alone when there is no such file.
func readJSON(path string, v any) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	if err := json.Unmarshal(content, v); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return nil
}
