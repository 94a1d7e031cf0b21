package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
)

type psCommand struct {
	stateFlags
	Output string `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// Help is shown by lab ps --help.
func (*psCommand) Help() string {
	return `STATUS is Starting, Running, Error, OOMKilled, Completed, CrashLoopBackOff or Terminating, as kubectl get pods has it.

Examples:
  lab ps
  lab ps --output json`
}

// psAnswer is what lab ps --output json prints. It holds no passwords.
type psAnswer struct {
	Ready     bool        `json:"ready"` // every process has been ready, and the shop is seeded
	PID       int         `json:"pid"`   // of lab up
	Started   time.Time   `json:"started_at"`
	Gateway   string      `json:"gateway"`
	Processes []psProcess `json:"processes"`
}

type psProcess struct {
	Name      string            `json:"name"`
	Service   string            `json:"service"`
	Ready     bool              `json:"ready"`
	Status    supervise.Phase   `json:"status"`
	Restarts  int               `json:"restarts"`
	AgeS      int64             `json:"age_s"` // since lab first started it
	PID       int               `json:"pid"`   // 0 while it does not run
	Addresses map[string]string `json:"addresses"`
	LastExit  *supervise.Exit   `json:"last_exit,omitempty"`
	NextStart *time.Time        `json:"next_start_at,omitempty"`
	Log       string            `json:"log"`
}

// Run shows the processes.
func (c *psCommand) Run(out io.Writer) error {
	_, dir, err := c.open()
	if err != nil {
		return err
	}
	instance, err := dir.ReadInstance()
	if err != nil {
		return err
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer(instance, time.Now()))
	}
	return writeTable(out, instance, time.Now())
}

func answer(i statedir.Instance, now time.Time) psAnswer {
	a := psAnswer{Ready: i.Ready, PID: i.Supervisor.PID, Started: i.Started, Gateway: i.Gateway, Processes: []psProcess{}}
	for _, p := range i.Processes {
		shown := psProcess{Name: p.Name, Service: p.Service, Ready: p.Ready, Status: p.Phase, Restarts: p.Restarts,
			AgeS: int64(now.Sub(p.Created).Seconds()), Addresses: p.Addresses, LastExit: p.LastExit, NextStart: p.NextStart, Log: p.Log}
		if p.Process != nil {
			shown.PID = p.Process.PID
		}
		a.Processes = append(a.Processes, shown)
	}
	return a
}

// writeTable prints what kubectl get pods would.
func writeTable(out io.Writer, i statedir.Instance, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tREADY\tSTATUS\tRESTARTS\tAGE")
	for _, p := range i.Processes {
		ready, restarts := "0/1", fmt.Sprint(p.Restarts)
		if p.Ready {
			ready = "1/1"
		}
		if p.Restarts > 0 && p.LastExit != nil {
			restarts += fmt.Sprintf(" (%s ago)", age(now.Sub(p.LastExit.At)))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.Name, ready, p.Phase, restarts, age(now.Sub(p.Created)))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// age writes a duration in at most two units: 42s, 5m3s, 3h12m, 2d4h.
func age(d time.Duration) string {
	switch d = max(d, 0).Truncate(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}
