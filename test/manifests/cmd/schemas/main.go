// Command schemas writes the schemas that package schema embeds, from the API description in the module k8s.io/kubernetes.
// It is run by hand, when a version is added:
//
//	go run ./test/manifests/cmd/schemas 1.30.14 1.37.2
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"example.com/watertight/test/manifests/schema"
)

const dir = "test/manifests/schema"

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, versions []string) error {
	if len(versions) == 0 {
		return errors.New("which versions? For instance 1.37.2")
	}
	for _, version := range versions {
		description, err := download(ctx, version)
		if err != nil {
			return err
		}
		document, err := narrow(description)
		if err != nil {
			return fmt.Errorf("%s: %w", version, err)
		}
		content, err := json.MarshalIndent(document, "", " ")
		if err != nil {
			return fmt.Errorf("%s: %w", version, err)
		}
		minor := version[:strings.LastIndex(version, ".")]
		path := filepath.Join(dir, "kubernetes-"+minor+".json")
		if err := os.WriteFile(path, append(content, '\n'), 0o600); err != nil { //nolint:gosec // whoever runs it chose the version
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

type definition struct {
	Properties map[string]any   `json:"properties"`
	GVK        []map[string]any `json:"x-kubernetes-group-version-kind"` //nolint:tagliatelle // Kubernetes calls it so
}

type description struct {
	Definitions map[string]json.RawMessage `json:"definitions"`
}

// download brings the module and reads its description of the API.
func download(ctx context.Context, version string) (description, error) {
	var d description
	wanted := "k8s.io/kubernetes@v" + version
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", wanted).Output() //nolint:gosec // whoever runs it chose the version
	if err != nil {
		return d, fmt.Errorf("download k8s.io/kubernetes@v%s: %w", version, err)
	}
	var module struct {
		Dir string `json:"Dir"` //nolint:tagliatelle // go calls it so
	}
	if err := json.Unmarshal(out, &module); err != nil {
		return d, fmt.Errorf("download: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(module.Dir, "api/openapi-spec/swagger.json"))
	if err != nil {
		return d, fmt.Errorf("API description: %w", err)
	}
	return d, json.Unmarshal(content, &d)
}

// document is what package schema reads.
type document struct {
	Kinds       map[string]string         `json:"kinds"` // group/version/kind to definition
	Definitions map[string]map[string]any `json:"definitions"`
}

// narrow keeps the wanted kinds and what they refer to.
func narrow(from description) (document, error) {
	out := document{Kinds: map[string]string{}, Definitions: map[string]map[string]any{}}
	for name, raw := range from.Definitions {
		var d definition
		if err := json.Unmarshal(raw, &d); err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
		for _, gvk := range d.GVK {
			kind := fmt.Sprintf("%s/%s/%s", gvk["group"], gvk["version"], gvk["kind"])
			if slices.Contains(schema.Kinds(), kind) {
				out.Kinds[kind] = name
				if err := from.take(name, out.Definitions); err != nil {
					return out, err
				}
			}
		}
	}
	if len(out.Kinds) != len(schema.Kinds()) {
		return out, fmt.Errorf("not all of %v are served", schema.Kinds())
	}
	return out, nil
}

const reference = "#/definitions/"

// take adds the definition and all that it refers to, made strict.
func (d description) take(name string, into map[string]map[string]any) error {
	if _, done := into[name]; done {
		return nil
	}
	var definition map[string]any
	if err := json.Unmarshal(d.Definitions[name], &definition); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	into[name] = strict(name, definition)
	for _, next := range references(into[name]) {
		if err := d.take(next, into); err != nil {
			return err
		}
	}
	return nil
}

// strict leaves of a definition what says what is allowed, and allows no fields besides.
func strict(name string, from map[string]any) map[string]any {
	// YAML may write these as a number, and the server takes that.
	if strings.HasSuffix(name, ".Quantity") || strings.HasSuffix(name, ".IntOrString") {
		return map[string]any{"type": []any{"string", "number"}}
	}
	out := keep(from)
	if _, fields := out["properties"]; fields {
		out["additionalProperties"] = false
	}
	return out
}

// keep drops descriptions and what a validator does not know.
func keep(from map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range from {
		nested, isSchema := value.(map[string]any)
		switch {
		case key == "properties" && isSchema:
			fields := map[string]any{}
			for field, of := range nested {
				if schema, ok := of.(map[string]any); ok {
					fields[field] = keep(schema)
				}
			}
			out[key] = fields
		case slices.Contains([]string{"additionalProperties", "items"}, key) && isSchema:
			out[key] = keep(nested)
		case slices.Contains([]string{"$ref", "additionalProperties", "enum", "required", "type"}, key):
			out[key] = value
		}
	}
	return out
}

func references(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if target, ok := value.(string); ok && key == "$ref" {
				out = append(out, strings.TrimPrefix(target, reference))
			}
			out = append(out, references(value)...)
		}
	case []any:
		for _, value := range v {
			out = append(out, references(value)...)
		}
	}
	return out
}
