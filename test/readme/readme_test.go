//go:build unix

package readme_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/readme"
	"example.com/watertight/test/repo"
	"example.com/watertight/test/shop"
)

// live has its own data: the walk shows what a fresh shop answers. What dies stays away long enough to be looked at.
var live = shop.New(func(int) (shop.Settings, error) {
	return shop.Settings{Flags: []string{"--restart-backoff", "6s"}}, nil
})

func TestMain(m *testing.M) { os.Exit(live.Main(m)) }

const usual = "http://localhost:8080"

func page(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestREADME_TheWalkGoesAsItSays(t *testing.T) {
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the walk needs %s: %v", program, err)
		}
	}
	s := live.Get(t)
	steps, err := readme.Steps(page(t, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) < 15 {
		t.Fatalf("%d commands in the README, want a walk", len(steps))
	}
	// One shell for all, because later commands use what earlier ones have set.
	const end = "--- end of step ---"
	var script strings.Builder
	for _, step := range steps {
		fmt.Fprintf(&script, "%s\necho %q\n", aboutThis(s, step.Command), end)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // some steps wait for what they show
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = projectOf(t, s)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("the walk: %v\n%s%s", err, out.String(), errOut.String())
	}
	printed := strings.Split(out.String(), end+"\n")
	if len(printed) != len(steps)+1 || errOut.Len() > 0 {
		t.Fatalf("%d steps printed something, want %d; and on standard error: %s", len(printed)-1, len(steps), errOut.String())
	}
	for i, step := range steps {
		if got := strings.ReplaceAll(printed[i], s.URL, usual); !step.Matches(got) {
			t.Errorf("README.md:%d: %s\nprints\n%s\nbut the page says\n%s", step.Line, step.Command, got, step.Want)
		}
	}
}

// aboutThis is the command as somebody would type it whose shop is s.
func aboutThis(s *shop.Shop, command string) string {
	command = strings.ReplaceAll(command, usual, s.URL)
	return regexp.MustCompile(`lab fault \w+`).ReplaceAllString(command, "$0 --gateway "+s.URL)
}

// projectOf is a folder that commands take for the project whose shop is s.
func projectOf(t *testing.T, s *shop.Shop) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "go.work"), nil, 0o600), os.Symlink(s.Dir(), filepath.Join(dir, ".watertight")))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestREADME_NamesFoldersAndFilesThatExist(t *testing.T) {
	text := page(t, "README.md")
	names := regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(text, -1)
	if len(names) < 7 {
		t.Fatalf("%d rows in the map, want all folders", len(names))
	}
	for _, row := range names {
		for name := range strings.SplitSeq(row[1], ", ") {
			exists(t, strings.Trim(name, "`"))
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^):]+)\)`).FindAllStringSubmatch(text, -1) {
		exists(t, link[1])
	}
}

func exists(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("..", "..", name)); err != nil {
		t.Errorf("README.md names %s: %v", name, err)
	}
}

func TestFieldReports_EachHasItsRowAndNamesTestsThatExist(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| (\d+) \| .* \| (.*) \|$`)
	next := 1
	for _, found := range row.FindAllStringSubmatch(page(t, "docs/field-reports.md"), -1) {
		if found[1] != fmt.Sprint(next) {
			t.Fatalf("report %s stands where %d should", found[1], next)
		}
		next++
		folder, named := "", 0
		for _, word := range regexp.MustCompile("`[^`]+`|Test[A-Za-z0-9_]+").FindAllString(found[2], -1) {
			if strings.HasPrefix(word, "`") {
				folder = strings.Trim(word, "`")
				continue
			}
			if named++; !hasTest(t, folder, word) {
				t.Errorf("report %s: there is no %s in %s", found[1], word, folder)
			}
		}
		if named == 0 && !strings.Contains(found[2], "not built yet") {
			t.Errorf("report %s has neither a test nor a reason", found[1])
		}
	}
	if next != 54 {
		t.Errorf("%d reports, want 53", next-1)
	}
}

// hasTest says whether a package of the repository has the test.
func hasTest(t *testing.T, folder, test string) bool {
	t.Helper()
	has, err := repo.HasTest(filepath.Join("..", "..", folder), test)
	if err != nil {
		t.Fatal(err)
	}
	return has
}
