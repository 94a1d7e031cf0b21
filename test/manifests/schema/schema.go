// Package schema holds objects against what the API servers of two Kubernetes versions say about them, the oldest that the
// chart supports and the newest: a field that one of them does not know is an error, as it is with `kubectl apply
// --validate=strict`. An API that both serve is served by all in between. It knows only the kinds that the chart uses.
//
// The types of k8s.io/api would be simpler to decode into, but there is one version of them in a module: they would not see
// a field that is too new for the oldest server.
package schema

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// files are written by cmd/schemas.
//
//go:embed kubernetes-*.json
var files embed.FS

// Versions are the Kubernetes versions, oldest first.
func Versions() []string { return []string{"1.30", "1.37"} }

// Kinds are those whose schemas are kept, as group/version/kind; the core group is empty.
func Kinds() []string {
	return []string{
		"/v1/ConfigMap", "/v1/Namespace", "/v1/Pod", "/v1/Secret", "/v1/Service", "/v1/ServiceAccount",
		"apps/v1/Deployment", "apps/v1/StatefulSet", "autoscaling/v2/HorizontalPodAutoscaler", "batch/v1/Job",
		"networking.k8s.io/v1/NetworkPolicy", "policy/v1/PodDisruptionBudget",
	}
}

// Server validates objects as the API server of one version.
type Server struct {
	version string
	kinds   map[string]*jsonschema.Schema // by group/version/kind
}

// Open reads the schemas of a version.
func Open(version string) (Server, error) {
	content, err := files.ReadFile("kubernetes-" + version + ".json")
	if err != nil {
		return Server{}, fmt.Errorf("schemas of Kubernetes %s: %w", version, err)
	}
	var document struct {
		Kinds map[string]string `json:"kinds"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return Server{}, fmt.Errorf("schemas of Kubernetes %s: %w", version, err)
	}
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(content)))
	if err != nil {
		return Server{}, fmt.Errorf("schemas of Kubernetes %s: %w", version, err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("kubernetes.json", parsed); err != nil {
		return Server{}, fmt.Errorf("schemas of Kubernetes %s: %w", version, err)
	}
	server := Server{version, map[string]*jsonschema.Schema{}}
	for kind, definition := range document.Kinds {
		if server.kinds[kind], err = compiler.Compile("kubernetes.json#/definitions/" + definition); err != nil {
			return Server{}, fmt.Errorf("schemas of Kubernetes %s: %s: %w", version, kind, err)
		}
	}
	return server, nil
}

// Validate says what the server would refuse the object for. known is false for kinds that it has no schema of.
func (s Server) Validate(apiVersion, kind string, object map[string]any) (known bool, err error) {
	if !strings.Contains(apiVersion, "/") {
		apiVersion = "/" + apiVersion
	}
	schema, known := s.kinds[apiVersion+"/"+kind]
	if !known {
		return false, nil
	}
	return true, schema.Validate(object)
}
