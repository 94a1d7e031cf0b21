//go:build unix

package measure

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"example.com/watertight/lab/result"
)

// Machine describes this machine, as far as /proc does; elsewhere than on Linux the rest stays empty.
func Machine() result.Machine {
	m := result.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), CPU: field("/proc/cpuinfo", "model name")}
	if kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryMB = kib / 1024
	}
	content, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(content)); err == nil && len(fields) > 0 {
		m.Load, _ = strconv.ParseFloat(fields[0], 64) // 0 where it cannot be read
	}
	return m
}

// field is the first value of that name in a file of "name : value" lines; "" when there is none.
func field(path, name string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Versions are those of what the shop is made of; the database's is added when it runs.
func Versions() map[string]string {
	v := map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go"), "nats-server": server.VERSION}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				changed = "+changes"
			}
		}
	}
	if revision != "" { // it is not known of a program that was built outside of a checkout
		v["watertight"] = revision + changed
	}
	return v
}
