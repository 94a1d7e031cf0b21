package proc

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// startOf reads when pid began from /proc: field 22 of stat, in clock ticks since boot, after the boot's own id, so that
// what was recorded before a reboot matches nothing.
func startOf(pid int) (string, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// The second field is the command in parentheses and may itself hold blanks and parentheses.
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	const state, threads, startTime = 0, 17, 19 // counted from the field after the command
	if end < 0 || len(fields) <= startTime || fields[state] == "X" {
		return "", false
	}
	// A process whose first thread has ended looks like a zombie while others still hold its files and locks.
	if fields[state] == "Z" && (fields[threads] == "0" || fields[threads] == "1") {
		return "", false
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[startTime], true
}

// WorkingDir returns the folder that the process with pid works in; ok is false when that cannot be told.
func WorkingDir(pid int) (dir string, ok bool) {
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return dir, err == nil
}

func setDeathSignal(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
