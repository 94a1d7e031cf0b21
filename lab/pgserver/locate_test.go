//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePrograms puts an initdb and a postgres that says it is version into dir.
func fakePrograms(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLocator_PrefersPGBinThenThePathThenTheNewest(t *testing.T) {
	root := t.TempDir()
	named := fakePrograms(t, filepath.Join(root, "named"), "14.1")
	path := fakePrograms(t, filepath.Join(root, "path"), "15.2 (Debian 15.2-1)")
	fakePrograms(t, filepath.Join(root, "lib/9/bin"), "9.6.24")
	sixteen := fakePrograms(t, filepath.Join(root, "lib/16/bin"), "16beta1")
	seventeen := fakePrograms(t, filepath.Join(root, "lib/17/bin"), "17.0")
	patterns := []string{filepath.Join(root, "lib/*/bin")}
	search := "/nonexistent:" + path

	for _, tc := range []struct {
		name    string
		locator Locator
		major   int
		want    Programs
	}{
		{"PG_BIN", Locator{PGBin: named, Path: search, Patterns: patterns}, 0, Programs{named, 14}},
		{"PATH", Locator{Path: search, Patterns: patterns}, 0, Programs{path, 15}},
		{"newest folder", Locator{Path: "/nonexistent", Patterns: patterns}, 0, Programs{seventeen, 17}},
		{"the version of the data, past the PATH", Locator{Path: search, Patterns: patterns}, 16, Programs{sixteen, 16}},
	} {
		if got, err := tc.locator.Find(t.Context(), tc.major); err != nil || got != tc.want {
			t.Errorf("%s: got %+v (%v), want %+v", tc.name, got, err, tc.want)
		}
	}
}

func TestLocator_FollowsALinkFarmToTheRealFolder(t *testing.T) {
	root := t.TempDir()
	cellar := fakePrograms(t, filepath.Join(root, "Cellar/postgresql@17/bin"), "17.2 (Homebrew)")
	farm := filepath.Join(root, "bin")
	if err := os.Mkdir(farm, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.Symlink(filepath.Join(cellar, name), filepath.Join(farm, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Locator{Path: farm}.Find(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := filepath.EvalSymlinks(cellar); got.Bin != want {
		t.Errorf("got %s, want %s", got.Bin, want)
	}
}

func TestLocator_SaysWhatIsWrongInOneLine(t *testing.T) {
	root := t.TempDir()
	old := fakePrograms(t, filepath.Join(root, "lib/9/bin"), "9.6.24")
	lone := fakePrograms(t, filepath.Join(root, "lone"), "17.0")
	if err := os.Remove(filepath.Join(lone, "initdb")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		locator Locator
		major   int
		want    string
	}{
		{"nothing", Locator{Path: lone}, 0, ErrNotFound.Error()},
		{"a PG_BIN without programs", Locator{PGBin: lone}, 0, "PG_BIN: no initdb in " + lone},
		{"too old", Locator{Patterns: []string{filepath.Join(root, "lib/*/bin")}}, 0, "too old: 14 or newer"},
		{"another version than the data's", Locator{PGBin: old}, 15, "the data was made by PostgreSQL 15"},
	} {
		_, err := tc.locator.Find(t.Context(), tc.major)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", tc.name, err, tc.want)
		}
	}
}

func TestInstall_SaysWhatToInstallWhereThereIsNoApt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Install(t.Context(), os.Environ())
	if !errors.Is(err, ErrNotFound) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "install") {
		t.Errorf("got %v, want one line that says what to install", err)
	}
}

func TestInstall_RunsAptGetAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs packages")
	}
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$DEBIAN_FRONTEND $*\" >> " + calls + "\n"
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/bin")
	if err := Install(t.Context(), os.Environ()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	want := "noninteractive update -q\nnoninteractive install -q -y --no-install-recommends postgresql\n"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
