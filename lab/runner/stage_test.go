//go:build unix

package runner

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"testing"
	"time"

	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/supervise"
)

func TestStage_PlaysOneShopAfterAnotherAndLeavesNothing(t *testing.T) {
	child := newOptions(t, "gateway", "search")
	options := child.options(nil)
	if err := options.Dir.Create(); err != nil {
		t.Fatal(err)
	}
	if err := Build(t.Context(), options, shop.Split); err != nil {
		t.Fatal(err)
	}
	stage, err := Raise(t.Context(), options, shop.Split)
	if err != nil {
		t.Fatal(err)
	}
	raised, err := options.Dir.ReadInstance()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run, err := stage.Open(t.Context(), options.Shop, supervise.Backoff{First: 50 * time.Millisecond, Max: 50 * time.Millisecond, Quiet: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.Get(run.Admin()["search"] + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("search: %s, %v", response.Status, err)
		}
		if run.Gateway() == "" || run.NATS() == "" || stage.PostgreSQL() == 0 {
			t.Errorf("gateway %q, NATS %q, PostgreSQL %d", run.Gateway(), run.NATS(), stage.PostgreSQL())
		}
		if err := run.Terminate("search"); err != nil {
			t.Error(err)
		}
		restarted := func() bool {
			for _, s := range run.Statuses() {
				if s.Name == "search" && s.Restarts == 1 && s.Ready {
					return true
				}
			}
			return false
		}
		for deadline := time.Now().Add(time.Minute); !restarted(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("search was not started again: %+v", run.Statuses())
			}
		}
		if err := run.Terminate("nobody"); err == nil {
			t.Error("a process that is none could be told to end")
		}
		during, err := options.Dir.ReadInstance()
		if err != nil {
			t.Fatal(err)
		}
		if err := run.End(); err != nil {
			t.Error(err)
		}
		for _, p := range during.Processes {
			if p.Name != postgresName && p.Name != natsName && p.Process != nil && p.Process.Alive() {
				t.Errorf("%s is left running", p.Name)
			}
		}
	}
	if err := stage.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, raised)
	if err := Remove(options.Dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(options.Dir.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder: got %v, want it gone", err)
	}
}

func TestRaise_ThatFailsLeavesNothing(t *testing.T) {
	child := newOptions(t, "gateway")
	options := child.options(nil)
	options.PGBin = t.TempDir() // no PostgreSQL there
	if stage, err := Raise(t.Context(), options, shop.Split); err == nil {
		t.Error("it was raised without PostgreSQL", stage.Close())
	}
	lock, err := options.Dir.Lock()
	if err != nil {
		t.Fatalf("the folder is still locked: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}
