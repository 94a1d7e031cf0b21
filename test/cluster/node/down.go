package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Down ends the cluster and removes all that Up and the cluster have made, but for the distribution's packages and the
// cache of programs. It goes on after a failure, so that as little as possible is left, and reports all of them; it may
// be called when there is nothing, and again.
func (n *Node) Down(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("a cluster was made by root, and only root can remove it")
	}
	names := processNames()
	containerd := len(names) - 1
	return errors.Join(
		n.processes.Stop(ctx, 10*time.Second, names[:containerd-2]...),
		n.processes.Stop(ctx, 3*time.Second, names[containerd-2]), // it would wait a minute for watches to end
		n.processes.Stop(ctx, 10*time.Second, names[containerd-1]),
		n.removeContainers(ctx),
		n.processes.Stop(ctx, 10*time.Second, names[containerd]),
		n.unmount(),
		n.network.Down(ctx),
		removeCgroups(ctx),
		n.removeTraces(),
		os.RemoveAll(n.Run),
		os.RemoveAll(n.State),
	)
}

// removeContainers kills and deletes the containers, and the network namespaces of their pods. A containerd that has died
// is started once more for it: its containers have not died with it.
func (n *Node) removeContainers(ctx context.Context) error {
	config, err := os.ReadFile(n.path("containerd.toml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has never run
	}
	if err != nil {
		return err
	}
	if err := n.runContainerd(ctx, string(config)); err != nil {
		return err
	}
	listed, err := n.ctr(ctx, "containers", "list", "-q")
	if err != nil {
		return err
	}
	containers := strings.Fields(listed)
	namespaces := map[string]bool{}
	inPod := regexp.MustCompile(`/netns/(cni-[0-9a-f-]+)`)
	for _, id := range containers {
		info, err := n.ctr(ctx, "containers", "info", id)
		if err != nil {
			continue // it has ended meanwhile
		}
		if match := inPod.FindStringSubmatch(info); match != nil {
			namespaces[match[1]] = true
		}
	}
	err = await(ctx, 30*time.Second, "end of the containers", func(ctx context.Context) error {
		tasks, err := n.ctr(ctx, "tasks", "list", "-q")
		if err != nil || strings.TrimSpace(tasks) == "" {
			return err
		}
		for task := range strings.FieldsSeq(tasks) {
			_, _ = n.ctr(ctx, "tasks", "delete", "--force", task) // asked again as long as it is listed
		}
		return fmt.Errorf("still there: %s", strings.Fields(tasks))
	})
	failures := []error{err}
	if len(containers) > 0 {
		_, err := n.ctr(ctx, append([]string{"containers", "delete"}, containers...)...)
		failures = append(failures, err)
	}
	for _, id := range containers { // what the CNI plugins remember of them
		results, err := filepath.Glob("/var/lib/cni/results/*-" + id + "-*")
		failures = append(failures, err)
		for _, result := range results {
			failures = append(failures, os.Remove(result))
		}
	}
	for ns := range namespaces {
		file := filepath.Join("/var/run/netns", ns)
		// Mounted, as `ip netns` would; with it goes the pod's end of its devices, and so ours.
		_ = syscall.Unmount(file, syscall.MNT_DETACH)
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// unmount takes away the mounts below our folders, the innermost first.
func (n *Node) unmount() error {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var mounts []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && (strings.HasPrefix(fields[1], n.State+"/") || strings.HasPrefix(fields[1], n.Run+"/")) {
			mounts = append(mounts, fields[1])
		}
	}
	var failures []error
	for _, mount := range slices.Backward(mounts) { // a later mount may lie within an earlier one
		if err := syscall.Unmount(mount, syscall.MNT_DETACH); err != nil {
			failures = append(failures, fmt.Errorf("unmount %s: %w", mount, err))
		}
	}
	return errors.Join(failures...)
}

// removeCgroups removes the pods' cgroups, of the first version in each controller's folder and of the second.
func removeCgroups(ctx context.Context) error {
	var failures []error
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods"} {
		roots, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, root := range roots {
			// The kernel takes a moment to notice that the last process has gone.
			failures = append(failures, await(ctx, 10*time.Second, "end of cgroup "+root, func(context.Context) error { return removeTree(root) }))
		}
	}
	return errors.Join(failures...)
}

// removeTree removes folders from the innermost on; the files in a cgroup cannot be removed, and need not.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // a cgroup may vanish while we look
	})
	for _, dir := range slices.Backward(dirs) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return err
}

// removeTraces removes what the kubelet and the CNI plugins leave in folders that are not ours.
func (n *Node) removeTraces() error {
	var failures []error
	links, err := filepath.Glob("/var/log/containers/*.log")
	failures = append(failures, err)
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, n.State+"/") {
			failures = append(failures, os.Remove(link))
		}
	}
	// The kubelet's socket for device plugins is in one place whatever its folder is; another kubelet's is not ours to take.
	const socket = "/var/lib/kubelet/device-plugins/kubelet.sock"
	if connection, err := net.DialTimeout("unix", socket, time.Second); err == nil { //nolint:noctx // bounded
		_ = connection.Close()
	} else if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		failures = append(failures, err)
	}
	// Folders that are empty now are ours or nobody's.
	for _, dir := range []string{
		"/var/log/containers", "/var/lib/cni/results", "/var/lib/cni", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/run/netns",
	} {
		_ = syscall.Rmdir(dir)
	}
	return errors.Join(failures...)
}
