//go:build unix

package observability

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runbooks are the pages, by path from the root.
func runbooks(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no runbooks: %v", err)
	}
	out := map[string]string{}
	for _, file := range files {
		path := filepath.Join("docs/runbooks", filepath.Base(file))
		out[path] = read(t, path)
	}
	return out
}

// A variable in a runbook is one that a program reads, and `NAME` (value) gives its default.
func TestRunbooks_NameVariablesThatExistWithTheirDefaults(t *testing.T) {
	defaults := variables(t)
	var (
		span   = regexp.MustCompile("`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`(?:\\s+\\(([^)\\s]+)\\))?")
		values int
	)
	for path, text := range runbooks(t) {
		for _, match := range span.FindAllStringSubmatch(text, -1) {
			name, value := match[1], match[2]
			known := defaults[name]
			switch suffix, placeholder := strings.CutPrefix(name, "X_"); {
			case placeholder && slices.ContainsFunc(slices.Collect(maps.Keys(defaults)), func(n string) bool { return strings.HasSuffix(n, "_"+suffix) }):
				// X stands for one of the services.
			case known == nil:
				t.Errorf("%s: no program reads %s", path, name)
			case value != "" && !slices.ContainsFunc(known, func(d string) bool { return sameValue(d, value) }):
				t.Errorf("%s: %s (%s), but its default is %q", path, name, value, known)
			}
			if value != "" {
				values++
			}
		}
	}
	if values < 5 {
		t.Errorf("%d values found, want those of the pages", values)
	}
}

// variables are the defaults of each variable that --help of a program lists.
func variables(t *testing.T) map[string][]string {
	t.Helper()
	var programs []string
	for _, pattern := range []string{"services/*/cmd/*/main.go", "gateway/cmd/*/main.go"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no program in %s: %v", pattern, err)
		}
		programs = append(programs, found...)
	}
	dir, line := t.TempDir(), regexp.MustCompile(`(?m)^  ([A-Z][A-Z0-9_]*) +(?:\[(.*?)\]|\(required\))  `)
	out := map[string][]string{}
	for i, program := range programs {
		programs[i] = filepath.Dir(program)
	}
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-buildvcs=false", "-o", dir}, programs...)...)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, said)
	}
	for _, program := range programs {
		help, err := exec.CommandContext(t.Context(), filepath.Join(dir, filepath.Base(program)), "--help").Output()
		if err != nil {
			t.Fatalf("%s --help: %v", filepath.Base(program), err)
		}
		listed := line.FindAllStringSubmatch(string(help), -1)
		if len(listed) < 10 {
			t.Fatalf("%s --help lists %d variables:\n%s", filepath.Base(program), len(listed), help)
		}
		for _, match := range listed {
			if !slices.Contains(out[match[1]], match[2]) {
				out[match[1]] = append(out[match[1]], match[2])
			}
		}
	}
	return out
}

// sameValue compares what a page says with a default. A page may give a duration in days.
func sameValue(have, said string) bool {
	if have == said {
		return true
	}
	want, err := time.ParseDuration(have)
	if err != nil {
		return false
	}
	if days, ok := strings.CutSuffix(said, "d"); ok {
		n, err := strconv.Atoi(days)
		return err == nil && want == time.Duration(n)*24*time.Hour
	}
	got, err := time.ParseDuration(said)
	return err == nil && want == got
}

// A quoted line of a log is one that some program writes: words in backquotes that are no command, and what is looked for
// in a log by grep.
func TestRunbooks_QuoteLogLinesThatAreWritten(t *testing.T) {
	texts := literals(t)
	quoted := 0
	for path, text := range runbooks(t) {
		for _, line := range quotes(text) {
			quoted++
			if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, line) }) {
				t.Errorf("%s: nothing writes %q", path, line)
			}
		}
	}
	if quoted < 10 {
		t.Errorf("%d quotes found, want those of the pages", quoted)
	}
}

// quotes are the log lines that a page names.
func quotes(text string) (lines []string) {
	var (
		block   = regexp.MustCompile(`(?m)^( {4}|\t).*$`)
		span    = regexp.MustCompile("`([^`]+)`")
		command = regexp.MustCompile(`^(lab|kubectl|make|NAME) `)
		words   = regexp.MustCompile(`^[A-Za-z]+,?( [A-Za-z]+,?)+$`)
		grep    = regexp.MustCompile(`grep (?:-E )?'([^']+)' \S+\.log`)
	)
	for _, match := range grep.FindAllStringSubmatch(text, -1) {
		for pattern := range strings.SplitSeq(match[1], "|") {
			if words.MatchString(pattern) {
				lines = append(lines, pattern)
			}
		}
	}
	// A quote may go on in the next line.
	prose := strings.Join(strings.Fields(block.ReplaceAllString(text, "")), " ")
	for _, match := range span.FindAllStringSubmatch(prose, -1) {
		if words.MatchString(match[1]) && !command.MatchString(match[1]) {
			lines = append(lines, match[1])
		}
	}
	return lines
}

// literals are the string constants in the programs' sources.
func literals(t *testing.T) (texts []string) {
	t.Helper()
	for _, part := range []string{"platform", "services", "gateway"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						texts = append(texts, text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}
