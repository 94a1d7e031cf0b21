package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"example.com/watertight/test/cluster/binaries"
	"example.com/watertight/test/cluster/process"
	"example.com/watertight/tools/images/image"
)

const (
	pauseRepository = "watertight.local/pause"
	pauseTag        = "1"
)

// installPackages installs what is missing of the programs that come from the distribution.
func (n *Node) installPackages(ctx context.Context) error {
	var missing []string
	for _, need := range []struct{ program, pkg string }{
		{"containerd", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"}, {"ip", "iproute2"},
		{"iptables", "iptables"}, {"ipset", "ipset"}, {"mount", "mount"},
	} {
		if _, err := exec.LookPath(need.program); err != nil && !slices.Contains(missing, need.pkg) {
			missing = append(missing, need.pkg)
		}
	}
	if cniPlugins() == "" {
		missing = append(missing, "containernetworking-plugins")
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing, and there is no apt-get to install them: %s", strings.Join(missing, " "))
	}
	fmt.Fprintf(n.Log, "installing %s\n", strings.Join(missing, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq"}, args...)...)
		cmd.Env = append(cmd.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// cniPlugins is the folder with the CNI plugins: Debian's, or where everybody else has them.
func cniPlugins() string {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir
		}
	}
	return ""
}

func (n *Node) socket() string { return filepath.Join(n.Run, "containerd.sock") }

// startContainerd starts a containerd of our own, beside any other, and gives it the image that holds a pod's namespaces.
func (n *Node) startContainerd(ctx context.Context) error {
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  stream_server_address = "127.0.0.1"
  enable_unprivileged_ports = true
  # Without CAP_SYS_RESOURCE, which root in a sandbox may lack, nobody may lower their oom_score_adj, and every pod would fail.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, n.path("containerd"), filepath.Join(n.Run, "containerd"), n.socket(), pauseRepository+":"+pauseTag, cniPlugins(), n.path("cni"))
	if err := n.write("containerd.toml", config); err != nil {
		return err
	}
	// A pair of devices for each pod, and routes: so every packet between pods passes the host's rules, as it must for
	// services and policies, without a kernel module that would show them to a bridge.
	if err := n.write("cni/10-pods.conflist", fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "watertight",
  "plugins": [
    {"type": "ptp", "ipMasq": false,
     "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, filepath.Join(n.Run, "addresses"), podCIDR)); err != nil {
		return err
	}
	if err := n.runContainerd(ctx, config); err != nil {
		return err
	}
	return n.loadPause(ctx)
}

func (n *Node) runContainerd(ctx context.Context, config string) error {
	command := process.Command{Name: "containerd", Args: []string{"containerd", "--config", n.path("containerd.toml")}, Config: config}
	if _, err := n.processes.Ensure(ctx, command); err != nil {
		return err
	}
	return await(ctx, time.Minute, "containerd", func(ctx context.Context) error {
		_, err := n.ctr(ctx, "version")
		return err
	})
}

func (n *Node) loadPause(ctx context.Context) error {
	program, err := n.Cache.Get(ctx, binaries.Source{Name: "pause", Module: filepath.Join(n.Source, "pause"), Package: "."})
	if err != nil {
		return err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	built, err := image.New(image.Spec{
		Arch: runtime.GOARCH, User: "65535:65535", Entrypoint: []string{"/pause"},
		Layers: [][]image.File{{{Path: "/pause", Mode: 0o755, Data: content}}},
	})
	if err != nil {
		return err
	}
	archive := n.path("pause.tar")
	if err := image.WriteArchive(archive, built, pauseRepository, pauseTag); err != nil {
		return err
	}
	_, err = n.ctr(ctx, "images", "import", archive)
	return err
}

// Load gives the images in the archives to the cluster, except those that it has: their tags follow the content.
func (n *Node) Load(ctx context.Context, archives ...string) error {
	listed, err := n.ctr(ctx, "images", "list", "-q")
	if err != nil {
		return err
	}
	there := strings.Fields(listed)
	for _, archive := range archives {
		repository, tags, err := image.ArchiveTags(archive)
		if err != nil {
			return err
		}
		known := func(tag string) bool {
			return strings.HasPrefix(tag, "sha-") && slices.Contains(there, "docker.io/"+repository+":"+tag)
		}
		if slices.ContainsFunc(tags, known) {
			continue
		}
		if _, err := n.ctr(ctx, "images", "import", archive); err != nil {
			return err
		}
		fmt.Fprintf(n.Log, "loaded %s:%s\n", repository, strings.Join(tags, ", "))
	}
	return nil
}

// ctr calls containerd's own client, where the kubelet's images and containers are.
func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(failure.Bytes()))
	}
	return out.String(), nil
}

// write writes a file of the state folder, but only when it would change: kube-proxy ends when its file is touched.
func (n *Node) write(name, content string) error {
	file := n.path(name)
	if old, err := os.ReadFile(file); err == nil && string(old) == content {
		return nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(content), 0o644)
}
