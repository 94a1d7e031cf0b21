//go:build unix

package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/watertight/lab/proc"
	"example.com/watertight/lab/supervise"
)

func newDir(t *testing.T) Dir {
	t.Helper()
	d := At(filepath.Join(t.TempDir(), "state"))
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFindRoot_WalksUpToTheWorkspace(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "lab", "cmd")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := FindRoot(deep); err == nil || !strings.Contains(err.Error(), "go.work") {
		t.Errorf("without a workspace: got %v, want an error about go.work", err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.work"), []byte("go 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := FindRoot(deep); err != nil || got != root {
		t.Errorf("got %s (%v), want %s", got, err, root)
	}
}

func TestLock_IsHeldByOneAtATime(t *testing.T) {
	d := newDir(t)
	first, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Lock()
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("a second time: got %v, want a LockedError of pid %d", err, os.Getpid())
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := d.Lock()
	if err != nil {
		t.Fatalf("after it was given back: %v", err)
	}
	if err := again.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestSecrets_StayTheSameAndPrivate(t *testing.T) {
	d := newDir(t)
	secrets, err := d.Secrets()
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := secrets.Get("checkout")
	if err != nil {
		t.Fatal(err)
	}
	recs, err := secrets.Get("recs")
	if err != nil || recs == checkout || len(recs) < 20 {
		t.Errorf("got %q and %q (%v), want two that differ", checkout, recs, err)
	}
	again, err := d.Secrets()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Get("checkout"); err != nil || got != checkout {
		t.Errorf("read again: got %q (%v), want %q", got, err, checkout)
	}
	info, err := os.Stat(d.secretsFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v (%v), want 0600", info.Mode(), err)
	}
}

func TestInstance_OfALabThatIsGoneDoesNotRun(t *testing.T) {
	d := newDir(t)
	if _, err := d.ReadInstance(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a record: got %v, want %v", err, ErrNotRunning)
	}
	self, _ := proc.Identify(os.Getpid())
	written := Instance{Supervisor: self, Gateway: "http://localhost:8080",
		Processes: []Process{{Status: supervise.Status{Name: "recs", Phase: supervise.Running}}}}
	if err := d.WriteInstance(written); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadInstance(); err != nil || got.Gateway != written.Gateway || got.Processes[0].Phase != supervise.Running {
		t.Errorf("got %+v (%v), want %+v", got, err, written)
	}
	written.Supervisor.Start = "another boot/1"
	if err := d.WriteInstance(written); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadInstance(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("with a pid that is used again: got %v, want %v", err, ErrNotRunning)
	}
}

func TestEmpty_RemovesDataAndNothingElse(t *testing.T) {
	d := newDir(t)
	mine := filepath.Join(d.Path(), "my-notes.txt")
	for _, path := range []string{mine, filepath.Join(d.Bin(), "recs"), filepath.Join(d.NATS(), "x"), filepath.Join(d.Postgres(), "x")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.SetSeeded("split", "a catalog"), d.SetPostgresHome("/somewhere")); err != nil {
		t.Fatal(err)
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{mine: true, filepath.Join(d.Bin(), "recs"): true, d.NATS(): false, d.Postgres(): false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	seeded, err1 := d.Seeded("split")
	home, err2 := d.PostgresHome()
	if seeded != "" || home != "" || err1 != nil || err2 != nil {
		t.Errorf("seeded %q (%v), home %q (%v), want both forgotten", seeded, err1, home, err2)
	}
}

func TestCreate_RefusesAFolderOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a folder of another user")
	}
	d := newDir(t)
	if err := os.Chown(d.Path(), 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := d.Create(); err == nil || !strings.Contains(err.Error(), "belongs to the user with id 12345") {
		t.Errorf("got %v, want an error that names the owner", err)
	}
}
