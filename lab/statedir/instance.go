//go:build unix

package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"example.com/watertight/lab/proc"
	"example.com/watertight/lab/supervise"
)

// Instance is what a running `lab up` tells other commands about itself. Its file holds passwords.
type Instance struct {
	Supervisor proc.ID   `json:"supervisor"`
	Started    time.Time `json:"started_at"`
	// Ready is set once every process has been ready and the shop is seeded.
	Ready     bool              `json:"ready"`
	Gateway   string            `json:"gateway"`   // base URL
	NATS      string            `json:"nats"`      // URL with the admin's password
	Databases map[string]string `json:"databases"` // URL of the service's own role, by service
	Processes []Process         `json:"processes"`
}

// Process is a process of an instance, with where it listens.
type Process struct {
	supervise.Status
	Addresses map[string]string `json:"addresses"` // host:port by protocol: http, grpc, admin, nats, sql
	Log       string            `json:"log"`
}

// GRPC is where the service answers: at its own process, or at the one process that answers for all; "" when there is
// neither.
func (i Instance) GRPC(service string) string {
	var all []string
	for _, p := range i.Processes {
		addr := p.Addresses["grpc"]
		if p.Name == service {
			return addr
		}
		if addr != "" {
			all = append(all, addr)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return ""
}

// ErrNotRunning says that no `lab up` uses the folder.
var ErrNotRunning = errors.New("no shop runs here; `lab up` starts one")

// WriteInstance replaces the record.
func (d Dir) WriteInstance(i Instance) error { return writeJSON(d.instanceFile(), i) }

// ReadInstance returns the record of the instance that runs, or ErrNotRunning.
func (d Dir) ReadInstance() (Instance, error) {
	i, err := d.LastInstance()
	if err != nil {
		return Instance{}, err
	}
	if !i.Supervisor.Alive() {
		return Instance{}, fmt.Errorf("%s: %w", d.path, ErrNotRunning)
	}
	return i, nil
}

// LastInstance returns the record that is there, whether the instance still runs or was killed; the zero Instance when
// there is none.
func (d Dir) LastInstance() (Instance, error) {
	var i Instance
	return i, readJSON(d.instanceFile(), &i)
}

// RemoveInstance forgets the record of an instance that has ended.
func (d Dir) RemoveInstance() error {
	if err := os.Remove(d.instanceFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}
