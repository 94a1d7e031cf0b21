package supervise

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"syscall"
	"time"

	"example.com/watertight/lab/proc"
)

// Command is a program to run as a Child.
type Command struct {
	Path   string
	Args   []string // without the program's own name
	Env    []string
	Dir    string
	Output io.Writer     // gets stdout and stderr
	RunAs  *proc.Account // nil: the caller
	// DeathSignal ends the child when this process is killed (Linux).
	DeathSignal syscall.Signal
}

// outputGrace is how long a dead child's own children may go on holding its output open.
const outputGrace = 2 * time.Second

// Start starts the program once.
func (c Command) Start(starter *proc.Starter) (Child, error) {
	// Its end is the supervisor's business, who has more to say than a context.
	cmd := exec.CommandContext(context.Background(), c.Path, c.Args...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	cmd.WaitDelay = outputGrace
	c.RunAs.RunAs(cmd)
	if err := starter.Start(cmd, c.DeathSignal); err != nil {
		return nil, err
	}
	id, _ := proc.Identify(cmd.Process.Pid) // a child that has ended already is seen by Wait
	id.PID = cmd.Process.Pid
	child := &command{cmd: cmd, id: id, exited: make(chan Exit, 1)}
	go child.wait()
	return child, nil
}

type command struct {
	cmd    *exec.Cmd
	id     proc.ID
	exited chan Exit
}

func (c *command) ID() proc.ID         { return c.id }
func (c *command) Exited() <-chan Exit { return c.exited }

// Signal ignores errors: the only one there can be is that the child has ended, which Exited tells.
func (c *command) Signal(sig syscall.Signal) { _ = c.cmd.Process.Signal(sig) }

func (c *command) wait() {
	err := c.cmd.Wait()
	state := c.cmd.ProcessState
	if state == nil {
		c.exited <- NotStarted(errors.Join(errors.New("lost sight of the process"), err))
		return
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		c.exited <- Signalled(status.Signal())
		return
	}
	c.exited <- Exited(state.ExitCode())
}
