// Package process runs a program beside the benchmarks, so that the processor time it takes can be told from theirs.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"example.com/watertight/lab/proc"
	"example.com/watertight/test/bench/servers"
)

// stopBound is how long a process may take to end when it is told to.
const stopBound = 10 * time.Second

// Process is a program that runs.
type Process struct {
	command *exec.Cmd
	starter *proc.Starter
	output  *os.File
	ended   chan struct{} // closed when it has
	result  error         // how it has ended
}

// Start starts a program with these variables and no others, and its output in a file of dir. It ends with this process at the latest.
func Start(dir, name string, command []string, environ ...string) (*Process, error) {
	output, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	program := exec.Command(command[0], command[1:]...) //nolint:noctx // Stop ends it
	p := &Process{command: program, starter: proc.NewStarter(), output: output, ended: make(chan struct{})}
	p.command.Env, p.command.Stdout, p.command.Stderr = environ, output, output
	if err := p.starter.Start(p.command, syscall.SIGKILL); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	go func() {
		defer close(p.ended)
		p.result = p.command.Wait()
	}()
	return p, nil
}

// Ready waits until url answers with a status of success.
func (p *Process) Ready(ctx context.Context, url string) error {
	err := servers.Await(ctx, servers.StartBound, func(ctx context.Context) error {
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %w", p.command.Path, p.result)
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		if answer.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("%s: %s", url, answer.Status)
		}
		return nil
	})
	if err != nil {
		said, _ := os.ReadFile(p.output.Name())
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(said[:min(len(said), 2000)])))
	}
	return nil
}

// CPU is the processor time that the process has taken, for itself and in the kernel.
func (p *Process) CPU() (time.Duration, error) { return cpu(p.command.Process.Pid) }

// Stop ends the process and waits for it.
func (p *Process) Stop() error {
	defer p.starter.Close()
	defer p.output.Close()
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopBound):
		_ = p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not end within %s", p.command.Path, stopBound)
	}
}

// FreeAddr is an address of this machine that nothing listens on.
func FreeAddr(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
