//go:build unix

package shop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Dir is the shop's state folder.
func (s *Shop) Dir() string { return s.dir }

// Record is what the shop writes down about itself. Unlike `lab ps` it costs next to nothing to read, it holds passwords,
// and it may be read from any goroutine.
type Record struct {
	NATS      string            `json:"nats"`      // URL with the administrator's password
	Databases map[string]string `json:"databases"` // URLs that the services themselves use
	Processes []RecordedProcess `json:"processes"`
}

// RecordedProcess is one process of the shop.
type RecordedProcess struct {
	Name      string            `json:"name"`
	Service   string            `json:"service"`
	Ready     bool              `json:"ready"`
	Restarts  int               `json:"restarts"`
	Addresses map[string]string `json:"addresses"`
	Process   *struct {
		PID int `json:"pid"`
	} `json:"process"` // nil while none runs
}

// PID is the process's id, 0 while it does not run.
func (p RecordedProcess) PID() int {
	if p.Process == nil {
		return 0
	}
	return p.Process.PID
}

// Record reads what the shop writes down about itself.
func (s *Shop) Record() (Record, error) { return ReadRecord(s.dir) }

// ReadRecord is Record for the shop in a state folder, also while it is being started.
func ReadRecord(dir string) (r Record, err error) {
	content, err := os.ReadFile(filepath.Join(dir, "instance.json"))
	if err != nil {
		return r, fmt.Errorf("the shop's record: %w", err)
	}
	if err := json.Unmarshal(content, &r); err != nil {
		return r, fmt.Errorf("the shop's record: %w", err)
	}
	return r, nil
}

// Death is a process that died by itself, or because a test killed it.
type Death struct{ Name, How string } // How is lab's word: "signal: killed", "exit code 1"

var death = regexp.MustCompile(`(?m)^(\S+) died \(\w+, (.*)\); starts again in`)

// Deaths lists every process that died so far and was started again.
func (s *Shop) Deaths() ([]Death, error) {
	content, err := os.ReadFile(filepath.Join(s.dir, "lab.log"))
	if err != nil {
		return nil, fmt.Errorf("the log of lab: %w", err)
	}
	var deaths []Death
	for _, found := range death.FindAllSubmatch(content, -1) {
		deaths = append(deaths, Death{Name: string(found[1]), How: string(found[2])})
	}
	return deaths, nil
}
