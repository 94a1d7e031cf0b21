// Package shape reduces a JSON document to its form, so that a test can compare keys and types to the letter and leave the
// values alone. It validates nothing else.
package shape

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Of returns the form of a document: the keys of objects sorted, and in place of each value its type, which is string,
// integer, number, boolean or null. An array has the forms of its elements, each once, with | between; {"a":[1,"x"]} is
// {a:[integer|string]}.
func Of(document string) (string, error) {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return "", fmt.Errorf("not JSON: %w", err)
	}
	return of(v), nil
}

func of(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "{" + join(fields(v), ",") + "}"
	case []any:
		return "[" + join(elements(v), "|") + "]"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "number"
		}
		return "integer"
	case string:
		return "string"
	case bool:
		return "boolean"
	default:
		return "null"
	}
}

func fields(object map[string]any) []string {
	out := make([]string, 0, len(object))
	for key, value := range object {
		out = append(out, key+":"+of(value))
	}
	return out
}

func elements(array []any) []string {
	out := make([]string, 0, len(array))
	for _, value := range array {
		out = append(out, of(value))
	}
	return out
}

func join(parts []string, separator string) string {
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), separator)
}
