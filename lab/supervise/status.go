package supervise

import (
	"fmt"
	"syscall"
	"time"

	"example.com/watertight/lab/proc"
)

// Phase is what a process is doing, in the words of kubectl's STATUS column.
type Phase string

// The phases of a process; the package comment draws how one follows another.
const (
	Starting         Phase = "Starting"         // started, has not been ready yet
	Running          Phase = "Running"          // has been ready since it was started
	Completed        Phase = "Completed"        // has just ended with exit code 0
	Error            Phase = "Error"            // has just ended otherwise, or could not be started
	OOMKilled        Phase = "OOMKilled"        // has just ended with exit code 137
	CrashLoopBackOff Phase = "CrashLoopBackOff" // waits for its next start
	Terminating      Phase = "Terminating"      // was told to end
	Stopped          Phase = "Stopped"          // ended because it was told to
)

// Status is a process as `lab ps` shows it.
type Status struct {
	Name     string    `json:"name"`
	Service  string    `json:"service"`
	Phase    Phase     `json:"status"`
	Ready    bool      `json:"ready"`
	Restarts int       `json:"restarts"`
	Created  time.Time `json:"created_at"`
	// Process is nil while none runs.
	Process  *proc.ID   `json:"process,omitempty"`
	Started  *time.Time `json:"started_at,omitempty"`
	LastExit *Exit      `json:"last_exit,omitempty"`
	// NextStart is when the process is started again; nil when it is not waiting for that.
	NextStart *time.Time `json:"next_start_at,omitempty"`
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code; 128 + the signal's number when a signal ended it, as a shell would say.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Failure says why the process could not be started at all.
	Failure string    `json:"failure,omitempty"`
	Reason  Phase     `json:"reason"`
	At      time.Time `json:"at"`
}

// oomExitCode is how a process says that it went over its memory limit: 128 + SIGKILL.
const oomExitCode = 137

// Exited describes a process that ended by itself with code.
func Exited(code int) Exit {
	switch code {
	case 0:
		return Exit{Code: code, Reason: Completed}
	case oomExitCode:
		return Exit{Code: code, Reason: OOMKilled}
	default:
		return Exit{Code: code, Reason: Error}
	}
}

// Signalled describes a process that a signal ended. Even SIGKILL counts as Error here: outside a container nobody can
// tell the kernel's memory killer from a kill -9.
func Signalled(sig syscall.Signal) Exit {
	return Exit{Code: 128 + int(sig), Signal: sig.String(), Reason: Error}
}

// NotStarted describes a process that could not be started.
func NotStarted(err error) Exit {
	return Exit{Code: -1, Failure: err.Error(), Reason: Error}
}

// String says it in a few words: "exit code 1", "signal: killed".
func (e Exit) String() string {
	switch {
	case e.Failure != "":
		return e.Failure
	case e.Signal != "":
		return "signal: " + e.Signal
	default:
		return fmt.Sprintf("exit code %d", e.Code)
	}
}
