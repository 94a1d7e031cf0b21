package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/test/manifests/chart"
	"example.com/watertight/test/manifests/schema"
)

// releases holds what each release has that can never be changed, in files VERSION.json: written once with
//
//	RECORD_RELEASE=1 go test ./test/manifests -run Upgrade
//
// when the version is released, and never touched again.
const releases = "testdata/releases"

// immutable are the fields that an API server refuses to change, by kind.
func immutable() map[string][]string {
	return map[string][]string{
		"Deployment":  {"spec.selector"},
		"StatefulSet": {"spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"},
		"Service":     {"spec.clusterIP"},
		"Job":         {"spec.template", "spec.selector", "spec.completionMode"},
		"Secret":      {"type", "immutable"},
		"ConfigMap":   {"immutable"},
	}
}

// fixed returns the immutable fields of every object, by kind and name.
func fixed(r release) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, o := range r.Objects {
		fields, known := immutable()[o.GetKind()]
		if !known || o.Hook() {
			continue
		}
		values := map[string]any{}
		for _, path := range fields {
			values[path] = at(o.Object, strings.Split(path, "."))
		}
		out[o.ID()] = values
	}
	return out
}

func at(object map[string]any, path []string) any {
	value := object[path[0]]
	if len(path) == 1 {
		return value
	}
	nested, _ := value.(map[string]any)
	return at(nested, path[1:])
}

// changed names the objects that both have, and in which something differs that must not.
func changed(t *testing.T, before, after map[string]map[string]any) []string {
	t.Helper()
	var out []string
	for id, was := range before {
		if now, still := after[id]; still && !cmp.Equal(was, now) {
			out = append(out, id+"\n"+cmp.Diff(was, now))
		}
	}
	return out
}

// stored gives maps the types that JSON has.
func stored(t *testing.T, content []byte) map[string]map[string]map[string]any {
	t.Helper()
	var out map[string]map[string]map[string]any
	if err := json.Unmarshal(content, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// recorded are the variants that people install.
func recorded() []string {
	return []string{"defaults", "kind", "minikube", "prod", "shared-pool", "pool-per-feature", "roles", "mtls"}
}

func TestReport41_UpgradeChangesNothingThatCannotBeChanged(t *testing.T) {
	now := map[string]map[string]map[string]any{}
	for _, name := range recorded() {
		now[name] = fixed(render(t, variants(t)[name]))
	}
	content, err := json.MarshalIndent(now, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("RECORD_RELEASE") != "" {
		if err := os.WriteFile(filepath.Join(releases, load(t).Version()+".json"), append(content, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	current := stored(t, content)
	entries, err := os.ReadDir(releases)
	if err != nil || len(entries) == 0 {
		t.Fatalf("no release is recorded: %v", err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(releases, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for variant, before := range stored(t, content) {
			if len(before) == 0 || len(current[variant]) == 0 {
				t.Errorf("%s: nothing recorded, or nothing rendered", variant)
			}
			for _, difference := range changed(t, before, current[variant]) {
				t.Errorf("from %s, %s: %s", entry.Name(), variant, difference)
			}
		}
	}
}

// From every design to every other, with mutual TLS switched on or off, with other images: nothing but ordinary changes.
func TestReport41_AnyVariantCanFollowAnyOther(t *testing.T) {
	all := map[string]map[string]map[string]any{}
	for name, values := range variants(t) {
		all[name] = fixed(render(t, values))
	}
	all["other images"] = fixed(render(t, chart.Values{"images": chart.Values{"lab": chart.Values{"tag": "sha-1"}, "recs": chart.Values{"tag": "sha-1"}}}))
	for before := range all {
		for after := range all {
			for _, difference := range changed(t, all[before], all[after]) {
				t.Errorf("from %s to %s: %s", before, after, difference)
			}
		}
	}
}

// A selector with a version in it would be another one in the next release.
func TestReport41_SelectorsAreNameAndInstance(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		for id, fields := range fixed(r) {
			selector, ok := fields["spec.selector"].(map[string]any)
			if !ok {
				continue
			}
			_, name, _ := strings.Cut(id, "/")
			want := map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/name": name, "app.kubernetes.io/instance": chart.Release}}
			if diff := cmp.Diff(want, selector); diff != "" {
				t.Errorf("%s: selector (-want +got):\n%s", id, diff)
			}
		}
	})
}

func TestImport_ANewImageIsANewJob(t *testing.T) {
	name := func(values chart.Values) string {
		for _, o := range render(t, values).Objects {
			if o.GetKind() == "Job" {
				return o.GetName()
			}
		}
		return ""
	}
	same, other := name(chart.Values{"services": chart.Values{"recs": chart.Values{"replicas": 1}}}), name(chart.Values{"images": chart.Values{"lab": chart.Values{"tag": "sha-1"}}})
	if before := name(nil); before == "" || same != before || other == before {
		t.Errorf("the job is %q, %q after a change elsewhere, %q with another image", before, same, other)
	}
	if off := name(chart.Values{"importJob": chart.Values{"enabled": false}}); off != "" {
		t.Errorf("%s is there although it is switched off", off)
	}
}

func TestSchemas_AreThoseOfTheVersionsThatAreServed(t *testing.T) {
	for _, version := range schema.Versions() {
		if _, err := schema.Open(version); err != nil {
			t.Error(err)
		}
	}
	if _, err := schema.Open("1.29"); err == nil {
		t.Error("1.29 is not supported, and still has schemas")
	}
}
