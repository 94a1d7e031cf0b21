package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// laptop is a copy of the scripts among programs that only write down how they are called: what a script does on a machine
// with Docker, shown on one without.
type laptop struct {
	dir string
	env []string
}

// fakes answer the questions that the scripts ask; everything else they do is the line in the log.
var fakes = map[string]string{
	"docker": `[ "$1" = version ] && echo arm64`,
	"kind": `case "$1 $2" in
		"get clusters") [ -z "${KIND_CLUSTER-}" ] || echo "$KIND_CLUSTER" ;;
		"create cluster") ! { [ -n "${OLD_KUBELET-}" ] && grep -q featureGates build/kind.yaml; } ;;
	esac`,
	"minikube": `case "$*" in *status) [ -n "${MINIKUBE_RUNS-}" ] || [ -e started ] ;; *start*) touch started ;; esac`,
	"kubectl": `case "$*" in
		"config current-context") echo "$CONTEXT" ;;
		"get nodes"*) printf arm64 ;;
		"get statefulset"*) echo statefulset.apps/postgres ;;
		"get deployment"*) printf 'deployment.apps/gateway\ndeployment.apps/recs\n' ;;
	esac`,
}

func newLaptop(t *testing.T, env ...string) laptop {
	t.Helper()
	l := laptop{dir: t.TempDir()}
	for _, dir := range []string{"scripts", "bin"} {
		if err := os.Mkdir(filepath.Join(l.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	scripts, err := filepath.Glob("../../scripts/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		content, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		l.write(t, "scripts/"+filepath.Base(script), string(content))
	}
	const record = "#!/bin/bash\necho \"$(basename \"$0\") $*\" >>\"$CALLS\"\n"
	for name, answers := range fakes {
		l.write(t, "bin/"+name, record+answers+"\n")
	}
	l.write(t, "scripts/images.sh", "#!/bin/bash\necho \"images.sh for $ARCH\" >>\"$CALLS\"\nmkdir -p build/images\ntouch build/images/{gateway,recs}-{amd64,arm64}.tar\n")
	l.env = append(os.Environ(), append(env, "PATH="+filepath.Join(l.dir, "bin")+":/usr/bin:/bin", "CALLS="+filepath.Join(l.dir, "calls"))...)
	return l
}

func (l laptop) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// run runs a script and returns what it printed, and the calls it made.
func (l laptop) run(t *testing.T, script string) (out string, calls []string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(l.dir, "scripts", script))
	cmd.Env = l.env
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, printed)
	}
	data, err := os.ReadFile(filepath.Join(l.dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	return string(printed), strings.Split(strings.TrimSpace(string(data)), "\n")
}

// inOrder fails unless calls has all of wanted, in that order, each as the beginning of a call.
func inOrder(t *testing.T, calls []string, wanted ...string) {
	t.Helper()
	rest := calls
	for _, want := range wanted {
		for len(rest) > 0 && !strings.HasPrefix(rest[0], want) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			t.Fatalf("no call %q after the ones before it; the calls were\n%s", want, strings.Join(calls, "\n"))
		}
		rest = rest[1:]
	}
}

func never(t *testing.T, calls []string, unwanted string) {
	t.Helper()
	for _, call := range calls {
		if strings.HasPrefix(call, unwanted) {
			t.Errorf("an unwanted call: %s", call)
		}
	}
}

func TestKindUp_MakesBuildsLoadsInstallsAndTells(t *testing.T) {
	l := newLaptop(t, "CONTEXT=kind-watertight")
	out, calls := l.run(t, "kind-up.sh")
	inOrder(t, calls,
		"kind create cluster --name watertight --config build/kind.yaml",
		"images.sh for arm64", // of the machine that Docker runs on
		"kind load image-archive --name watertight build/images/gateway-arm64.tar",
		"kind load image-archive --name watertight build/images/recs-arm64.tar",
		"kubectl delete job --namespace watertight",
		"kubectl apply --kustomize build/kind",
		"kubectl rollout status statefulset.apps/postgres",
		"kubectl rollout status deployment.apps/recs",
		"kubectl wait job --all",
	)
	for _, want := range []string{"http://localhost:8080/", `"ttl_s":900`, "20s at most", "kubectl delete pod -n watertight -l app.kubernetes.io/name=recs", "make kind-down"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not tell of %q:\n%s", want, out)
		}
	}
	config := readFile(t, l, "build/kind.yaml")
	for _, want := range []string{
		"hostPort: 8080, containerPort: 30080", "hostPort: 16686, containerPort: 30686", "      featureGates: {KubeletCrashLoopBackOffMax: true}\n",
		"      crashLoopBackOff: {maxContainerRestartPeriod: 20s}\n",
	} {
		if !strings.Contains(config, want) {
			t.Errorf("kind.yaml lacks %q:\n%s", want, config)
		}
	}
	if got := readFile(t, l, "build/kind/kustomization.yaml"); !strings.Contains(got, "resources: [../../k8s/kind]\ncomponents: [../images]\n") {
		t.Errorf("kustomization.yaml:\n%s", got)
	}
}

func TestKindUp_DoesWithoutTheLowerLimitWhereTheKubeletKnowsNone(t *testing.T) {
	l := newLaptop(t, "CONTEXT=kind-watertight", "OLD_KUBELET=1")
	out, calls := l.run(t, "kind-up.sh")
	inOrder(t, calls, "kind create cluster", "kind delete cluster --name watertight", "kind create cluster", "kubectl apply")
	if config := readFile(t, l, "build/kind.yaml"); strings.Contains(config, "featureGates") {
		t.Errorf("kind.yaml still has the limit:\n%s", config)
	}
	if !strings.Contains(out, "5m at most") {
		t.Errorf("it does not tell that the wait is up to 5m:\n%s", out)
	}
}

func TestKindUp_KeepsAClusterThatIsThere(t *testing.T) {
	l := newLaptop(t, "CONTEXT=kind-watertight", "KIND_CLUSTER=watertight")
	_, calls := l.run(t, "kind-up.sh")
	never(t, calls, "kind create")
	inOrder(t, calls, "kubectl config use-context kind-watertight", "kind load", "kubectl apply")
}

func TestMinikubeUp_MakesBuildsLoadsInstallsAndTells(t *testing.T) {
	l := newLaptop(t, "CONTEXT=watertight-minikube")
	out, calls := l.run(t, "minikube-up.sh")
	inOrder(t, calls,
		"minikube start --profile watertight-minikube --driver docker --cni calico --ports 127.0.0.1:8080:30080 --ports 127.0.0.1:16686:30686",
		"images.sh for arm64",
		"minikube --profile watertight-minikube image load build/images/gateway-arm64.tar",
		"kubectl apply --kustomize build/minikube",
		"kubectl rollout status deployment.apps/gateway",
	)
	if !strings.Contains(out, "5m at most") || !strings.Contains(out, "make minikube-down") {
		t.Errorf("it tells:\n%s", out)
	}
}

func TestMinikubeUp_KeepsAClusterThatIsThere(t *testing.T) {
	l := newLaptop(t, "CONTEXT=watertight-minikube", "MINIKUBE_RUNS=1")
	_, calls := l.run(t, "minikube-up.sh")
	never(t, calls, "minikube start")
	inOrder(t, calls, "kubectl config use-context watertight-minikube", "kubectl apply")
}

func TestLoadImages_RefusesAClusterThatTakesItsImagesElsewhere(t *testing.T) {
	l := newLaptop(t, "CONTEXT=production")
	if err := os.MkdirAll(filepath.Join(l.dir, "build/images"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused := func(want string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(l.dir, "scripts/load-images.sh"))
		cmd.Env = l.env
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("got %v, %s, want a failure with %q", err, out, want)
		}
	}
	refused("make images ARCH=arm64")
	l.write(t, "build/images/recs-arm64.tar", "")
	refused("the context production belongs neither to kind nor to minikube")
}

func TestLaptop_MissingProgramsAreNamed(t *testing.T) {
	for script, program := range map[string]string{"kind-up.sh": "kind", "minikube-up.sh": "minikube"} {
		if _, err := os.Stat("/usr/bin/" + program); err == nil {
			t.Logf("%s is installed where the scripts find it: not tried without", program)
			continue
		}
		l := newLaptop(t)
		if err := os.Remove(filepath.Join(l.dir, "bin", program)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(l.dir, "scripts", script))
		cmd.Env = l.env
		if out, err := cmd.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), program+" not found. Needed: "+program+": https://") {
			t.Errorf("%s without %s: got %v, %s", script, program, err, out)
		}
	}
}

func readFile(t *testing.T, l laptop, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
