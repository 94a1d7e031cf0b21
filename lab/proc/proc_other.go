//go:build unix && !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// startOf asks ps, which every Unix has, for the start date. A zombie has none that counts.
func startOf(pid int) (string, bool) {
	out, err := exec.Command("ps", "-o", "state=,lstart=", "-p", strconv.Itoa(pid)).Output()
	state, start, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !found || strings.HasPrefix(state, "Z") {
		return "", false
	}
	return strings.TrimSpace(start), true
}

// WorkingDir returns the folder that the process with pid works in; ok is false when that cannot be told.
func WorkingDir(pid int) (dir string, ok bool) {
	out, err := exec.Command("lsof", "-a", "-p", strconv.Itoa(pid), "-d", "cwd", "-Fn").Output()
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(out)) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "n"); is {
			return name, true
		}
	}
	return "", false
}

// setDeathSignal does nothing: only Linux has it. Elsewhere the next start ends what a killed parent left behind.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
