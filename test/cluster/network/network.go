// Package network sets up what the cluster needs of the host's network, and takes it away again: an address for the node,
// routes for services, a fence around the pods, and a few kernel settings. Nothing of it is reachable from outside this
// machine, and no pod reaches outside.
package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Plan is which addresses are used for what. None may overlap what the machine is connected to.
type Plan struct {
	Device            string // a bridge without ports, which carries the node's address
	NodeIP            string
	PodCIDR           string
	ServiceCIDR       string
	FenceTable        int // a routing table, and the priority of the rule that leads to it
	SavedSettingsFile string
}

// Up makes it so, and leaves alone what is so already.
func (p Plan) Up(ctx context.Context) error {
	if err := p.set("net/ipv4/ip_forward", 1); err != nil {
		return err
	}
	// Each container's log and each of the kubelet's folders is watched.
	if err := p.set("fs/inotify/max_user_instances", 1024); err != nil {
		return err
	}
	if run(ctx, nil, "ip", "link", "show", p.Device) != nil {
		if err := run(ctx, nil, "ip", "link", "add", p.Device, "type", "bridge"); err != nil {
			return err
		}
	}
	table := strconv.Itoa(p.FenceTable)
	steps := [][]string{
		{"addr", "replace", p.NodeIP + "/32", "dev", p.Device},
		{"link", "set", p.Device, "up"},
		// A service's address that no rule translates must not leave by the default route; and on a machine that has none,
		// a packet to a service needs a route before it can be translated.
		{"route", "replace", p.ServiceCIDR, "dev", p.Device, "src", p.NodeIP},
		// The fence: what a pod sends and is not for the cluster has no route. `throw` goes on to the main table.
		{"route", "replace", "throw", p.PodCIDR, "table", table},
		{"route", "replace", "throw", p.ServiceCIDR, "table", table},
		{"route", "replace", "unreachable", "default", "table", table},
	}
	for _, step := range steps {
		if err := run(ctx, nil, "ip", step...); err != nil {
			return err
		}
	}
	// `ip rule add` would add it a second time.
	_ = run(ctx, nil, "ip", p.fence("del")...)
	return run(ctx, nil, "ip", p.fence("add")...)
}

func (p Plan) fence(verb string) []string {
	table := strconv.Itoa(p.FenceTable)
	return []string{"rule", verb, "from", p.PodCIDR, "lookup", table, "pref", table}
}

// Down removes what Up made, the chains and sets of kube-proxy, kube-router and the CNI plugins, and puts the kernel's
// settings back. It goes on after a failure, and reports all of them.
func (p Plan) Down(ctx context.Context) error {
	// What is not there need not be removed, and the tools have no word for "if it is there".
	_ = run(ctx, nil, "ip", p.fence("del")...)
	_ = run(ctx, nil, "ip", "route", "flush", "table", strconv.Itoa(p.FenceTable))
	_ = run(ctx, nil, "ip", "link", "del", p.Device)
	return errors.Join(
		clearChains(ctx, "iptables"),
		clearChains(ctx, "ip6tables"),
		clearSets(ctx),
		p.restoreSettings(),
	)
}

// clearChains takes the cluster's chains out of all tables, and nobody else's rules.
func clearChains(ctx context.Context, program string) error {
	if !installed(program + "-save") {
		return nil // then it has made none either
	}
	saved, err := exec.CommandContext(ctx, program+"-save").Output()
	if err != nil {
		return fmt.Errorf("%s-save: %w", program, err)
	}
	removal := removeChains(string(saved))
	if removal == "" {
		return nil
	}
	return run(ctx, []byte(removal), program+"-restore", "--noflush", "--wait")
}

// removeChains turns the output of iptables-save into the input for iptables-restore --noflush that removes the cluster's
// chains: first the rules that lead into them, then what is in them, then the chains.
func removeChains(saved string) string {
	var all, table strings.Builder
	var chains []string
	for line := range strings.Lines(saved) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table.Reset()
			chains = nil
			table.WriteString(line + "\n")
		case strings.HasPrefix(line, ":"):
			if chain, _, _ := strings.Cut(line[1:], " "); isOurs(chain) {
				chains = append(chains, chain)
			}
		case strings.HasPrefix(line, "-A "):
			fields := strings.Fields(line)
			i := indexAfter(fields, "-j", "-g")
			if !isOurs(fields[1]) && (i > 0 && isOurs(fields[i]) || strings.Contains(line, "kube-router")) {
				table.WriteString("-D" + line[2:] + "\n")
			}
		case line == "COMMIT" && len(chains) > 0:
			for _, chain := range chains {
				table.WriteString("-F " + chain + "\n")
			}
			for _, chain := range chains {
				table.WriteString("-X " + chain + "\n")
			}
			all.WriteString(table.String() + "COMMIT\n")
		}
	}
	return all.String()
}

func indexAfter(fields []string, options ...string) int {
	for i, field := range fields[:len(fields)-1] {
		if slices.Contains(options, field) {
			return i + 1
		}
	}
	return 0
}

// isOurs knows the names that Kubernetes' programs and the CNI plugins give their chains.
func isOurs(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-") || strings.HasPrefix(chain, "CNI-")
}

func clearSets(ctx context.Context) error {
	if !installed("ipset") {
		return nil
	}
	names, err := exec.CommandContext(ctx, "ipset", "list", "-name").Output()
	if err != nil {
		return fmt.Errorf("ipset list: %w", err)
	}
	var failures []error
	for name := range strings.FieldsSeq(string(names)) {
		plain := strings.TrimPrefix(name, "inet6:")
		if strings.HasPrefix(plain, "KUBE-") || strings.HasPrefix(plain, "kube-router-") {
			failures = append(failures, run(ctx, nil, "ipset", "destroy", name))
		}
	}
	return errors.Join(failures...)
}

// alsoSet are the settings that the kubelet and kube-proxy change.
func alsoSet() []string {
	return []string{
		"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "vm/overcommit_memory",
		"vm/panic_on_oom", "net/ipv4/conf/all/route_localnet", "net/ipv4/conf/all/arp_ignore", "net/ipv4/vs/conntrack",
	}
}

// set raises a kernel setting to at least value, and remembers what it was.
func (p Plan) set(name string, value int) error {
	if err := p.saveSettings(append(alsoSet(), "net/ipv4/ip_forward", "fs/inotify/max_user_instances")); err != nil {
		return err
	}
	now, err := readSetting(name)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(now); err == nil && n >= value {
		return nil
	}
	return writeSetting(name, strconv.Itoa(value))
}

// saveSettings writes down what the settings are, once: a second time it would save what we have set.
func (p Plan) saveSettings(names []string) error {
	if _, err := os.Stat(p.SavedSettingsFile); err == nil {
		return nil
	}
	saved := map[string]string{}
	for _, name := range names {
		if value, err := readSetting(name); err == nil { // not every kernel has every one
			saved[name] = value
		}
	}
	data, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	if err := os.WriteFile(p.SavedSettingsFile, data, 0o644); err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	return nil
}

func (p Plan) restoreSettings() error {
	data, err := os.ReadFile(p.SavedSettingsFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	var saved map[string]string
	if err := json.Unmarshal(data, &saved); err != nil {
		return fmt.Errorf("kernel settings: %s: %w", p.SavedSettingsFile, err)
	}
	var failures []error
	for name, value := range saved {
		if now, err := readSetting(name); err == nil && now != value {
			failures = append(failures, writeSetting(name, value))
		}
	}
	return errors.Join(failures...)
}

func readSetting(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return "", fmt.Errorf("kernel setting: %w", err)
	}
	return string(bytes.TrimSpace(data)), nil
}

func writeSetting(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("kernel setting: %w", err)
	}
	return nil
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

func run(ctx context.Context, input []byte, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
