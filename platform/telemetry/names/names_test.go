package names_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"example.com/watertight/platform/telemetry/names"
)

var update = flag.Bool("update", false, "write docs/traces.md instead of holding it up to date")

const page = "../../../docs/traces.md"

var table = regexp.MustCompile(`(?m)^<!-- attributes:.*-->\n(?:\|.*\n)*`)

// The documentation lists every attribute that is declared here.
func TestAttributes_AreDocumented(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("<!-- attributes: made by `go test ./platform/telemetry/names -update` -->\n| attribute | what it says |\n|---|---|\n")
	for _, a := range names.Attributes() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", a.Key, a.Meaning)
	}
	want := table.ReplaceAllLiteralString(string(content), b.String())
	if want == string(content) && strings.Contains(want, b.String()) {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run go test ./platform/telemetry/names -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
