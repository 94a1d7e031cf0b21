// Package chart renders helm/watertight as Helm does at an installation, without a cluster, and takes the result apart into
// objects. It writes no files; what it cannot read strictly is an error.
package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Release is the name and the namespace that the chart is rendered for.
const Release = "watertight"

// Values are Helm's values, nested.
type Values = map[string]any

// Object is one Kubernetes object as it was rendered.
type Object struct {
	unstructured.Unstructured

	// Source is its YAML, comments included.
	Source string
}

// ID is the object's kind and name.
func (o Object) ID() string { return o.GetKind() + "/" + o.GetName() }

// Component is the process or the part of the shop that the object belongs to: what its label app.kubernetes.io/name says.
func (o Object) Component() string { return o.GetLabels()["app.kubernetes.io/name"] }

// Hook reports whether Helm keeps the object out of the release: tests are such.
func (o Object) Hook() bool { return o.GetAnnotations()["helm.sh/hook"] != "" }

// Chart is the chart, loaded.
type Chart struct{ chart *chartv2.Chart }

// Load reads the chart in dir.
func Load(dir string) (Chart, error) {
	loaded, err := loader.LoadDir(dir)
	if err != nil {
		return Chart{}, fmt.Errorf("chart: %w", err)
	}
	return Chart{loaded}, loaded.Validate()
}

// KubeVersion is the range of Kubernetes versions that the chart asks for.
func (c Chart) KubeVersion() string { return c.chart.Metadata.KubeVersion }

// Version is the chart's own version.
func (c Chart) Version() string { return c.chart.Metadata.Version }

// ReadValues reads a values file.
func ReadValues(file string) (Values, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	values := Values{}
	if err := yaml.UnmarshalStrict(content, &values); err != nil {
		return nil, fmt.Errorf("values %s: %w", filepath.Base(file), err)
	}
	return values, nil
}

// Rendered is what an installation consists of.
type Rendered struct {
	Objects []Object
	Notes   string
}

// Render renders the chart with values over its own. Values that the schema refuses are an error.
func (c Chart) Render(values Values) (Rendered, error) {
	full, err := util.ToRenderValues(c.chart, values, common.ReleaseOptions{Name: Release, Namespace: Release, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return Rendered{}, fmt.Errorf("values: %w", err)
	}
	files, err := engine.Render(c.chart, full)
	if err != nil {
		return Rendered{}, fmt.Errorf("render: %w", err)
	}
	var out Rendered
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) == "NOTES.txt" {
			out.Notes = files[name]
			continue
		}
		objects, err := Parse(files[name])
		if err != nil {
			return Rendered{}, fmt.Errorf("%s: %w", name, err)
		}
		out.Objects = append(out.Objects, objects...)
	}
	return out, nil
}

// Parse takes a stream of YAML documents apart. A key that stands twice in one mapping is an error.
func Parse(stream string) ([]Object, error) {
	var out []Object
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(stream)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("YAML: %w", err)
		}
		object := Object{Source: strings.TrimSpace(string(bytes.TrimPrefix(document, []byte("---")))) + "\n"}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, fmt.Errorf("YAML: %w\n%s", err, document)
		}
		if len(object.Object) > 0 { // else only comments
			out = append(out, object)
		}
	}
}
