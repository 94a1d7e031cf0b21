package manifests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// waiver is a finding of kube-score that stands.
type waiver struct {
	check  string
	object string // the beginning of kind/name; "" is all
	reason string
}

func waivers() []waiver {
	return []waiver{
		{"container-image-pull-policy", "", "tags follow the content (or are a release's), and images that were loaded into a node are in no registry"},
		{"container-ephemeral-storage-request-and-limit", "", "roots are read-only, every emptyDir has a size limit, and the kubelet rotates the logs: nothing is left to limit"},
		{"container-security-context-user-group-id", "StatefulSet/postgres", "the user that PostgreSQL's images have in /etc/passwd; without a line there initdb refuses to run"},
		{"deployment-has-host-podantiaffinity", "Deployment/", "topologySpreadConstraints spread the pods, and do not keep a third from starting on two nodes"},
		{"service-type", "Service/gateway", "a port of the node, on kind and minikube: a port-forward would pin one pod"},
		{"service-type", "Service/jaeger-ui", "the same"},
		{"deployment-strategy", "Deployment/jaeger", "its traces are in memory: of two at once each would have a part"},
		{"deployment-strategy", "Deployment/collector", "it decides about whole traces: of two at once each would have a part"},
	}
}

// score is what kube-score says of one object.
type score struct {
	ObjectName string `json:"object_name"`
	Checks     []struct {
		Check struct {
			ID string `json:"id"`
		} `json:"check"`
		Grade    int  `json:"grade"`
		Skipped  bool `json:"skipped"`
		Comments []struct {
			Path    string `json:"path"`
			Summary string `json:"summary"`
		} `json:"comments"`
	} `json:"checks"`
	TypeMeta struct {
		Kind string `json:"kind"`
	} `json:"type_meta"`
	ObjectMeta struct {
		Name string `json:"name"`
	} `json:"object_meta"`
}

// kubeScore builds the tool, which is pinned in tools/: as a library it needs types that newer Kubernetes modules have no
// more.
func kubeScore(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kube-score")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "github.com/zegl/kube-score/cmd/kube-score")
	build.Dir = filepath.Join(root, "tools")
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build kube-score: %v\n%s", err, out)
	}
	return program
}

// A second opinion, from kube-score.
func TestObjects_PassKubeScoreButForWhatHasAReason(t *testing.T) {
	program := kubeScore(t)
	const almostOK = 7 // scorecard.GradeAlmostOK
	var used sync.Map
	each(t, func(t *testing.T, r release) {
		var stream strings.Builder
		for _, o := range r.Objects {
			stream.WriteString("---\n" + o.Source)
		}
		cmd := exec.Command(program, "score", "--output-format=json", "--kubernetes-version=v1.30", "--ignore-container-cpu-limit", "--min-replicas-deployment=1", "-")
		cmd.Stdin = strings.NewReader(stream.String())
		out, err := cmd.Output() // it exits with 1 when it finds something
		var scores []score
		if err := json.Unmarshal(out, &scores); err != nil {
			t.Fatal(err)
		}
		if len(scores) < 10 {
			t.Fatalf("kube-score looked at %d objects only: %v", len(scores), err)
		}
		for _, s := range scores {
			object := s.TypeMeta.Kind + "/" + s.ObjectMeta.Name
			for _, c := range s.Checks {
				if c.Skipped || c.Grade >= almostOK {
					continue
				}
				// The variant that has none is there on purpose.
				waived := c.Check.ID == "pod-networkpolicy" && strings.HasSuffix(t.Name(), "no_network_policy")
				for i, w := range waivers() {
					if w.check == c.Check.ID && strings.HasPrefix(object, w.object) {
						waived = true
						used.Store(i, true)
					}
				}
				if !waived {
					t.Errorf("%s: %s: %v", object, c.Check.ID, c.Comments)
				}
			}
		}
	})
	for i, w := range waivers() {
		if _, yes := used.Load(i); !yes {
			t.Errorf("the waiver of %s for %q is not needed any more", w.check, w.object)
		}
	}
}
