package debian_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/tools/images/debian"
)

// A shell as Debian packs it, with the C library it is linked with in another package: real programs of this machine in
// packages of our own.
func TestPool_SelectsProgramsWithWhatTheyAreLinkedWith(t *testing.T) {
	for _, program := range []string{"dpkg-deb", "ldd", "dash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("not a Debian machine: %v", err)
		}
	}
	dash := filepath.Join(t.TempDir(), "dash")
	copyFile(t, "/bin/dash", dash)
	linked, err := exec.Command("ldd", dash).Output()
	if err != nil {
		t.Fatal(err)
	}
	library := map[string]string{"/usr/share/doc/libc/copyright": "", "/lib/unneeded.so.1": ""}
	var want []string
	for field := range strings.FieldsSeq(string(linked)) {
		if strings.HasPrefix(field, "/") {
			library[field] = field
			want = append(want, usr(field))
		}
	}
	// The library needs the dynamic linker by its name alone, and finds it beside itself.
	libc := want[slices.IndexFunc(want, func(path string) bool { return strings.Contains(path, "libc.so") })]
	for _, path := range slices.Clone(want) {
		beside := filepath.Join(filepath.Dir(libc), filepath.Base(path))
		if library[beside] = path; !slices.Contains(want, beside) {
			want = append(want, beside)
		}
	}
	debs := []string{
		pack(t, "libc", library),
		pack(t, "shell", map[string]string{"/bin/dash": dash, "/usr/share/man/dash.1": "", "/usr/share/doc/shell/copyright": ""}),
	}
	pool, err := debian.Open(t.Context(), debs)
	if err != nil {
		t.Fatal(err)
	}
	files, err := pool.Select(func(f debian.File) bool { return !strings.Contains(f.Path, "/man/") }, "shell")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	want = append(want, "/usr/bin/dash", "/usr/share/doc/libc/copyright", "/usr/share/doc/shell/copyright")
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if pkg := pool.Packages["shell"]; pkg.Version != "1.0-1" {
		t.Errorf("package: got %+v, want version 1.0-1", pkg)
	}

	alone, err := debian.Open(t.Context(), debs[1:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Select(func(debian.File) bool { return true }, "shell"); err == nil || !strings.Contains(err.Error(), "/usr/bin/dash needs ") {
		t.Errorf("without the library: got %v, want an error that names the program", err)
	}
}

func usr(path string) string {
	if strings.HasPrefix(path, "/usr/") {
		return path
	}
	return "/usr" + path
}

// pack makes a .deb with copies of the files, by their paths in it; "" is an empty file.
func pack(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	control := "Package: " + name + "\nVersion: 1.0-1\nArchitecture: all\nMaintainer: nobody\nDescription: a test\n"
	if err := os.Mkdir(filepath.Join(root, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "DEBIAN/control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, from := range files {
		to := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		copyFile(t, from, to)
	}
	deb := filepath.Join(t.TempDir(), name+".deb")
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", root, deb).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return deb
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	var data []byte
	if from != "" {
		var err error
		if data, err = os.ReadFile(from); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
