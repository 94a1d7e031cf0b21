package footprint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// resident is the memory of a process, in bytes.
type resident struct {
	all   float64 // VmRSS
	own   float64 // RssAnon: heap, stacks, and what the runtime keeps of them
	file  float64 // RssFile: pages of the program that it has touched, which the system may drop and read again
	share float64 // Pss: as all, but a page that n processes have counts as one n-th
}

func residentOf(pid int) (resident, error) {
	status, err := fields(pid, "status")
	if err != nil {
		return resident{}, err
	}
	rollup, err := fields(pid, "smaps_rollup")
	if err != nil {
		return resident{}, err
	}
	return resident{all: status["VmRSS"], own: status["RssAnon"], file: status["RssFile"], share: rollup["Pss"]}, nil
}

// residentTree is the memory of a process and its children together. What they share counts once only in share.
func residentTree(parent int) (resident, error) {
	sum, err := residentOf(parent)
	if err != nil {
		return sum, err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return sum, err
	}
	for _, file := range stats {
		pid, of, ok := parentIn(file)
		if !ok || of != parent {
			continue
		}
		child, err := residentOf(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) { // it has ended meanwhile
			continue
		}
		if err != nil {
			return sum, err
		}
		sum.all += child.all
		sum.share += child.share
		sum.own, sum.file = 0, 0 // they share most of it
	}
	return sum, nil
}

// parentIn reads a pid and its parent's from a stat file of /proc; ok is false when the process has ended.
func parentIn(file string) (pid, parent int, ok bool) {
	stat, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, false
	}
	before, _, _ := bytes.Cut(stat, []byte(" "))
	after := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name in parentheses may hold anything
	if len(after) < 2 {
		return 0, 0, false
	}
	pid, errPID := strconv.Atoi(string(before))
	parent, errParent := strconv.Atoi(after[1])
	return pid, parent, errPID == nil && errParent == nil
}

// fields reads the lines "Name: N kB" of a file of /proc, in bytes.
func fields(pid int, file string) (map[string]float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) != 3 || words[2] != "kB" {
			continue
		}
		kib, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%s of process %d: %w", file, pid, err)
		}
		values[strings.TrimSuffix(words[0], ":")] = kib * 1024
	}
	return values, nil
}
