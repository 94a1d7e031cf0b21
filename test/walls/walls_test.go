package walls_test

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/test/walls"
)

func TestWalls_HoldInThisRepository(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	breaches, err := walls.Check(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range breaches {
		t.Error(breach)
	}
}

func TestWalls_LetTheArrowsThrough(t *testing.T) {
	repo := repository()
	repo["services/search/server.go"] = imports("search", "proto/search/v1", "platform/rpc")
	repo["gateway/server.go"] = imports("gateway", "proto/checkout/v1", "platform/upstream")
	repo["lab/up.go"] = imports("lab", "services/search", "gateway", "platform/rpc", "proto/checkout/v1")
	repo["test/shop_test.go"] = imports("test", "lab", "services/search")
	addModule(repo, "test/bench")
	repo["test/bench/main.go"] = imports("main", "lab/pgserver", "services/search", "platform/outbox")
	if diff := cmp.Diff([]string(nil), check(t, repo)); diff != "" {
		t.Errorf("breaches (-want +got):\n%s", diff)
	}
}

func TestWalls_OnlyTheMonolithHoldsTheServices(t *testing.T) {
	repo := repository()
	addModule(repo, "services/monolith")
	repo["services/monolith/main.go"] = imports("main", "services/search", "services/checkout", "gateway")
	if diff := cmp.Diff([]string(nil), check(t, repo)); diff != "" {
		t.Errorf("breaches (-want +got):\n%s", diff)
	}
}

func TestWalls_ReportEachBreach(t *testing.T) {
	tests := map[string]struct {
		file *fstest.MapFile
		at   string
		want string
	}{
		"a service imports a service": {
			at: "services/checkout/order.go", file: imports("checkout", "services/search"),
			want: "services/checkout/order.go: services/checkout may not import services/search",
		},
		"a service imports a package inside a service": {
			at: "services/checkout/order.go", file: imports("checkout", "services/search/cmd/search"),
			want: "services/checkout/order.go: services/checkout may not import services/search",
		},
		"a service's test imports a service": {
			at: "services/checkout/order_test.go", file: imports("checkout_test", "services/search"),
			want: "services/checkout/order_test.go: services/checkout may not import services/search",
		},
		"a service imports a service behind a build tag": {
			at: "services/checkout/order.go", file: &fstest.MapFile{
				Data: append([]byte("//go:build never\n\n"), imports("checkout", "services/search").Data...),
			},
			want: "services/checkout/order.go: services/checkout may not import services/search",
		},
		"a service imports the monolith, which need not exist": {
			at: "services/checkout/order.go", file: imports("checkout", "services/monolith"),
			want: "services/checkout/order.go: services/checkout may not import services/monolith",
		},
		"a service imports the gateway": {
			at: "services/checkout/order.go", file: imports("checkout", "gateway"),
			want: "services/checkout/order.go: services/checkout may not import gateway",
		},
		"the gateway imports a service": {
			at: "gateway/cmd/gateway/main.go", file: imports("main", "services/checkout"),
			want: "gateway/cmd/gateway/main.go: gateway may not import services/checkout",
		},
		"platform imports the shop's contracts": {
			at: "platform/rpc/rpc.go", file: imports("rpc", "proto/checkout/v1"),
			want: "platform/rpc/rpc.go: platform may not import proto",
		},
		"platform imports a service": {
			at: "platform/rpc/rpc.go", file: imports("rpc", "services/checkout"),
			want: "platform/rpc/rpc.go: platform may not import services/checkout",
		},
		"proto imports platform": {
			at: "proto/doc.go", file: imports("proto", "platform/rpc"),
			want: "proto/doc.go: proto may not import platform",
		},
		"a service imports the lab": {
			at: "services/checkout/order.go", file: imports("checkout", "lab"),
			want: "services/checkout/order.go: services/checkout may not import lab",
		},
		"the lab imports the tests": {
			at: "lab/up.go", file: imports("lab", "test/walls"),
			want: "lab/up.go: lab may not import test",
		},
		"a go.mod requires a service": {
			at: "gateway/go.mod", file: goMod("gateway", "services/checkout"),
			want: "gateway/go.mod: gateway may not require services/checkout",
		},
		"a go.mod requires a sibling without replacing it": {
			at: "gateway/go.mod", file: text("module " + walls.Root + "/gateway\n\nrequire " + walls.Root + "/proto v0.0.0\n"),
			want: "gateway/go.mod: requires proto without a replace line: GOWORK=off cannot find it",
		},
		"a go.mod replaces a sibling by another folder": {
			at: "gateway/go.mod", file: text("module " + walls.Root + "/gateway\n\nreplace " + walls.Root + "/proto => ../platform\n"),
			want: "gateway/go.mod: replaces " + walls.Root + "/proto by ../platform, which is not its folder",
		},
		"a module has another name than its folder": {
			at: "gateway/go.mod", file: text("module " + walls.Root + "/edge\n"),
			want: "gateway/go.mod: the module is called " + walls.Root + "/edge, want " + walls.Root + "/gateway",
		},
		"a module that nobody thought of": {
			at: "utils/go.mod", file: goMod("utils"),
			want: "utils: a module that the walls have no rule for",
		},
		"a module that the workspace lacks": {
			at: "services/payment/go.mod", file: goMod("services/payment"),
			want: "go.work: services/payment: in the workspace is false, want true",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			repo := repository()
			repo[tt.at] = tt.file
			got := check(t, repo)
			if !slices.Contains(got, tt.want) {
				t.Errorf("got breaches %q, want %q among them", got, tt.want)
			}
		})
	}
}

func TestWalls_RefuseAFolderThatIsNotTheRepository(t *testing.T) {
	if got, err := walls.Check(fstest.MapFS{"README.md": text("")}); err == nil {
		t.Errorf("got breaches %q and no error, want an error", got)
	}
}

// repository returns a small one without a breach.
func repository() fstest.MapFS {
	repo := fstest.MapFS{"go.work": text("go 1.26.0\n")}
	for _, dir := range []string{"proto", "platform", "gateway", "services/checkout", "services/search", "lab", "test"} {
		addModule(repo, dir)
	}
	repo["tools/go.mod"] = goMod("tools")
	return repo
}

func addModule(repo fstest.MapFS, dir string) {
	repo[path.Join(dir, "go.mod")] = goMod(dir)
	repo["go.work"] = text(string(repo["go.work"].Data) + "use ./" + dir + "\n")
}

func goMod(dir string, requires ...string) *fstest.MapFile {
	lines := "module " + walls.Root + "/" + dir + "\n"
	for _, r := range requires {
		up := strings.Repeat("../", strings.Count(dir, "/")+1)
		lines += "require " + walls.Root + "/" + r + " v0.0.0\nreplace " + walls.Root + "/" + r + " => " + up + r + "\n"
	}
	return text(lines)
}

func imports(pkg string, targets ...string) *fstest.MapFile {
	lines := "package " + pkg + "\n"
	for _, target := range targets {
		lines += "import _ \"" + walls.Root + "/" + target + "\"\n"
	}
	return text(lines)
}

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func check(t *testing.T, repo fstest.MapFS) []string {
	t.Helper()
	breaches, err := walls.Check(repo)
	if err != nil {
		t.Fatal(err)
	}
	return breaches
}
