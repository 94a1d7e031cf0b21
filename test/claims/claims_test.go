// Package claims holds the test of docs/claims.md: that every path, test and command that it names exists. Whether the
// figures are right it cannot know; the commands show that.
package claims

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.com/watertight/test/repo"
)

const root = "../.."

// claim is one row.
type claim struct{ number, text, built, tests, command, figure string }

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func claims(t *testing.T) []claim {
	t.Helper()
	var all []claim
	for line := range strings.Lines(read(t, "docs/claims.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !regexp.MustCompile(`^\s*\d+\s*$`).MatchString(cells[0]) {
			continue
		}
		if len(cells) != 6 {
			t.Fatalf("%d cells, want 6: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, claim{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]})
	}
	return all
}

func quoted(text string) []string {
	var words []string
	for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		words = append(words, found[1])
	}
	return words
}

func TestClaims_EachNamesWhereItIsBuiltAndHasAFigure(t *testing.T) {
	all := claims(t)
	if len(all) < 40 {
		t.Fatalf("%d claims, want those of both articles", len(all))
	}
	for i, c := range all {
		if c.number != strconv.Itoa(i+1) {
			t.Errorf("claim %s stands where %d should", c.number, i+1)
		}
		paths := quoted(c.built)
		if len(paths) == 0 || c.text == "" || c.figure == "" {
			t.Errorf("claim %s: no place, no text or no figure", c.number)
		}
		for _, path := range paths {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("claim %s: %v", c.number, err)
			}
		}
	}
}

func TestClaims_EachNamesTestsThatExist(t *testing.T) {
	for _, c := range claims(t) {
		folder, named := "", 0
		for _, word := range regexp.MustCompile("`[^`]+`|Test[A-Za-z0-9_]+").FindAllString(c.tests, -1) {
			if strings.HasPrefix(word, "`") {
				folder = strings.Trim(word, "`")
				continue
			}
			if named++; !hasTest(t, folder, word) {
				t.Errorf("claim %s: there is no %s in %s", c.number, word, folder)
			}
		}
		if named == 0 {
			t.Errorf("claim %s names no test", c.number)
		}
	}
}

func hasTest(t *testing.T, folder, test string) bool {
	t.Helper()
	has, err := repo.HasTest(filepath.Join(root, folder), test)
	if err != nil {
		t.Fatal(err)
	}
	return has
}

func TestClaims_EachNamesACommandThatExists(t *testing.T) {
	for _, c := range claims(t) {
		commands := quoted(c.command)
		if len(commands) == 0 {
			t.Errorf("claim %s names no command", c.number)
		}
		for _, command := range commands {
			exists(t, "claim "+c.number, command)
		}
	}
}

// The worksheet's commands are the lines that are set off; what follows && or | is another one.
func TestGameDay_NamesCommandsThatExist(t *testing.T) {
	commands := 0
	for line := range strings.Lines(read(t, "docs/game-day.md")) {
		if text, set := strings.CutPrefix(line, "    "); set {
			for command := range strings.SplitSeq(text, " && ") {
				commands++
				exists(t, "docs/game-day.md", command)
			}
		}
	}
	if commands < 10 {
		t.Errorf("got %d commands, want a worksheet", commands)
	}
}

// exists checks that a command of lab or a target of make is there, and the scenarios and designs that it names.
func exists(t *testing.T, where, command string) {
	t.Helper()
	words := strings.Fields(command)
	if len(words) < 2 {
		t.Errorf("%s: %q is no command", where, command)
		return
	}
	// A command of lab is a field of its command line, by its own name or by one that a tag gives.
	field := regexp.MustCompile(`(?m)^\t(?i:` + words[1] + `) +[a-zA-Z.]+ +` + "`cmd:|" + `name:"` + words[1] + `"`)
	known := map[string]bool{
		"make": strings.Contains(read(t, "Makefile"), "\n"+words[1]+":"), "lab": field.MatchString(read(t, "lab/cmd/lab/main.go")),
	}
	if !known[words[0]] {
		t.Errorf("%s: there is no command %q", where, command)
	}
	if words[0] == "lab" {
		names(t, where, words)
	}
}

// names checks the scenarios and designs of a command against the one table of them.
func names(t *testing.T, where string, words []string) {
	t.Helper()
	table := read(t, "lab/scenario/scenario.go")
	known := func(name string) bool { return strings.Contains(table, `= "`+name+`"`) }
	takes := map[string]bool{"--designs": true, "--design": true, "--scenario": true}
	for i, word := range words[2:] {
		before := words[i+1]
		scenario := (words[1] == "run" || words[1] == "gameday") && !strings.HasPrefix(word, "--") && (i == 0 || !strings.HasPrefix(before, "--"))
		if !takes[before] && !scenario {
			continue
		}
		for name := range strings.SplitSeq(word, ",") {
			if !known(name) {
				t.Errorf("%s: %s knows no %q", where, words[1], name)
			}
		}
	}
}
