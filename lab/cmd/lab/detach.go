package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/statedir"
)

// reportFD is the pipe on which a lab in the background tells its starter how far it is, one JSON value a line.
const reportFD = 3

type report struct {
	Line  string `json:"line,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// detach starts this program again in the background, shows what it reports, and returns when the shop is ready. An
// interrupt before that ends the background process, too.
func detach(ctx context.Context, lab string, dir statedir.Dir, p process) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	defer reader.Close()
	// Only a crash of lab itself ends up here: everything else goes to the log.
	crash := filepath.Join(dir.Path(), "lab.crash")
	crashFile, err := os.OpenFile(crash, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("detach: %w", err), writer.Close())
	}
	defer crashFile.Close()

	// It outlives ctx, and its arguments are the user's own.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), lab, append(os.Args[1:], "--background")...) //nolint:gosec // see above
	cmd.Env, cmd.Stdout, cmd.Stderr = p.environ, crashFile, crashFile
	cmd.ExtraFiles = []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if closing := writer.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // fails only when it has ended
	defer stop()

	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("detach: unexpected report %q: %w", lines.Text(), err)
		}
		switch {
		case r.Ready:
			return cmd.Process.Release()
		case r.Error != "":
			return errors.Join(errors.New(r.Error), ignoreExit(cmd.Wait()))
		default:
			fmt.Fprintln(p.out, r.Line)
		}
	}
	if err := ignoreExit(cmd.Wait()); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	return fmt.Errorf("the shop ended before it was ready; see %s and %s", dir.Log(), crash)
}

// ignoreExit drops the exit code of a process whose report said what was wrong.
func ignoreExit(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return nil
	}
	return err
}

// upInBackground runs the shop with its reports going to whoever started this process.
func upInBackground(ctx context.Context, options runner.Options) error {
	syscall.CloseOnExec(reportFD) // or the shop's processes would hold the pipe open
	pipe := os.NewFile(reportFD, "report")
	reports := json.NewEncoder(pipe)
	open := true
	send := func(r report) {
		if open {
			err := reports.Encode(r)
			open = err == nil // without a starter there is nobody to tell, and the shop stays
		}
	}
	options.Out, options.Color = nil, false
	options.Progress = func(line string) { send(report{Line: line}) }
	options.Ready = func() {
		send(report{Ready: true})
		open = false
		_ = pipe.Close()
	}
	err := runner.Up(ctx, options)
	if err != nil {
		send(report{Error: err.Error()})
	}
	return err
}
