//go:build unix

package pgserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"example.com/watertight/lab/proc"
)

// Home makes and returns the folder that a cluster lives in. That is preferred, below the state folder, unless the
// server's user cannot go there (the project lies in a private home folder, say, and lab runs as root): then it is
// /var/lib/watertight/NAME, or the same in the temporary folder, where NAME stands for preferred. A choice that was made
// before is kept: recorded is what Home returned then, "" at first.
func Home(ctx context.Context, p Programs, account *proc.Account, preferred, recorded string) (string, error) {
	if recorded != "" {
		return recorded, makeHome(ctx, p, account, recorded)
	}
	if err := RemoveElsewhere(preferred); err != nil {
		return "", err
	}
	err := makeHome(ctx, p, account, preferred)
	if err == nil || account == nil {
		return preferred, err
	}
	for _, home := range elsewhere(preferred) {
		next := makeHome(ctx, p, account, home)
		if next == nil {
			return home, os.Remove(preferred)
		}
		err = errors.Join(err, next)
	}
	return "", err
}

// RemoveElsewhere removes the clusters that were made for preferred in other places. Without the state folder's passwords
// nobody can use them.
func RemoveElsewhere(preferred string) error {
	for _, home := range elsewhere(preferred) {
		if err := os.RemoveAll(home); err != nil {
			return fmt.Errorf("remove the PostgreSQL data of a state folder that is gone: %w", err)
		}
	}
	return nil
}

func elsewhere(preferred string) []string {
	if os.Geteuid() != 0 {
		return nil
	}
	sum := sha256.Sum256([]byte(preferred))
	name := hex.EncodeToString(sum[:8])
	return []string{filepath.Join("/var/lib/watertight", name), filepath.Join(os.TempDir(), "watertight-"+name)}
}

// makeHome makes a folder that only account can enter, or refuses one that exists and is another user's.
//
//nolint:gosec // the path is the state folder's or made of a hash, and 0755 is what account needs to get there
func makeHome(ctx context.Context, p Programs, account *proc.Account, home string) error {
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return fmt.Errorf("PostgreSQL home: %w", err)
	}
	uid := os.Geteuid()
	if account != nil {
		uid = int(account.UID)
	}
	switch err := os.Mkdir(home, 0o700); {
	case err == nil && account != nil:
		if err := os.Chown(home, int(account.UID), int(account.GID)); err != nil {
			return fmt.Errorf("PostgreSQL home: %w", err)
		}
	case errors.Is(err, fs.ErrExist):
		info, err := os.Lstat(home)
		if err != nil {
			return fmt.Errorf("PostgreSQL home: %w", err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != uid {
			return fmt.Errorf("%s belongs to another user than the one PostgreSQL runs as (uid %d): run lab as before, or remove it", home, uid)
		}
	case err != nil:
		return fmt.Errorf("PostgreSQL home: %w", err)
	}
	return reach(ctx, p, account, home)
}

// reach reports whether account can run the server's program in dir, by doing so: only the kernel knows about modes,
// access lists and mounts all at once.
func reach(ctx context.Context, p Programs, account *proc.Account, dir string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(p.Bin, "postgres"), "--version")
	cmd.Dir = dir
	account.RunAs(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the user that PostgreSQL runs as cannot work in %s: %w", dir, err)
	}
	return nil
}
