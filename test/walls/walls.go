// Package walls checks which module of the repository may use which: proto <- platform <- services and gateway <- lab and
// test. Services never import each other and the gateway imports no service; only services/monolith, whose subject that
// is, may. It reads every Go file and go.mod, whatever the build tags, and refuses modules it has no rule for. It says
// nothing about packages within one module.
package walls

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/modfile"
)

// Root is the path that the modules' paths begin with.
const Root = "example.com/watertight"

// reach returns the patterns (path.Match) of the modules that the module in folder dir may use, and whether there is a
// rule for it at all.
func reach(dir string) (patterns []string, known bool) {
	switch {
	case dir == "proto":
		return nil, true
	case dir == "platform":
		// Health checking comes with grpc, and everything in proto is the shop's: so nothing.
		return nil, true
	case dir == "services/monolith":
		return []string{"proto", "platform", "services/*", "gateway"}, true
	case dir == "gateway", path.Dir(dir) == "services":
		return []string{"proto", "platform"}, true
	case dir == "lab":
		return []string{"proto", "platform", "services/*", "gateway"}, true
	case dir == "test", dir == "test/bench", dir == "test/e2e", dir == "test/manifests":
		return []string{"proto", "platform", "services/*", "gateway", "lab"}, true
	case dir == "tools", path.Dir(dir) == "tools", path.Dir(dir) == "test/cluster":
		return nil, true
	case dir == "test/cluster":
		return []string{"tools/images"}, true
	case dir == "test/openapi":
		return []string{"proto", "platform", "gateway"}, true
	case dir == "test/browser", dir == "test/observability":
		return []string{"proto", "platform", "test"}, true
	}
	return nil, false
}

// standsAlone reports whether the module is kept out of the workspace because its versions must not mix with ours: the
// tools that others wrote, and the parts of the test cluster that are built from Kubernetes' modules.
func standsAlone(dir string) bool {
	return dir == "tools" || dir == "tools/lint" || path.Dir(dir) == "test/cluster"
}

// Check reads the repository in fsys and returns its breaches, one line each, sorted; none is the good case. An error
// means that the repository could not be read.
func Check(fsys fs.FS) ([]string, error) {
	modules, err := findModules(fsys)
	if err != nil {
		return nil, err
	}
	var breaches []string
	for _, dir := range modules {
		allowed, known := reach(dir)
		if !known {
			breaches = append(breaches, fmt.Sprintf("%s: a module that the walls have no rule for", dir))
			continue
		}
		fromMod, err := checkGoMod(fsys, dir, allowed)
		if err != nil {
			return nil, err
		}
		fromCode, err := checkImports(fsys, dir, allowed, modules)
		if err != nil {
			return nil, err
		}
		breaches = append(append(breaches, fromMod...), fromCode...)
	}
	fromWork, err := checkGoWork(fsys, modules)
	if err != nil {
		return nil, err
	}
	breaches = append(breaches, fromWork...)
	slices.Sort(breaches)
	return breaches, nil
}

// findModules returns the folders that hold a go.mod.
func findModules(fsys fs.FS) ([]string, error) {
	var dirs []string
	err := walk(fsys, ".", func(name string) error {
		if path.Base(name) == "go.mod" {
			dirs = append(dirs, path.Dir(name))
		}
		return nil
	})
	if err == nil && len(dirs) == 0 {
		err = errors.New("walls: no module found: not the root of the repository")
	}
	return dirs, err
}

// checkGoMod looks at what a module may build with: the module's name follows its folder, only modules in reach are
// required or replaced, and each one required is replaced by its folder, so that GOWORK=off finds it.
func checkGoMod(fsys fs.FS, dir string, allowed []string) ([]string, error) {
	name := path.Join(dir, "go.mod")
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("walls: %w", err)
	}
	file, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, fmt.Errorf("walls: %w", err)
	}
	if file.Module == nil {
		return []string{name + ": names no module"}, nil
	}
	var breaches []string
	if got, want := file.Module.Mod.Path, Root+"/"+dir; got != want {
		breaches = append(breaches, fmt.Sprintf("%s: the module is called %s, want %s", name, got, want))
	}
	replaced := map[string]bool{}
	for _, r := range file.Replace {
		target, ours := strings.CutPrefix(r.Old.Path, Root+"/")
		if !ours {
			continue
		}
		replaced[target] = true
		if path.Join(dir, r.New.Path) != target {
			breaches = append(breaches, fmt.Sprintf("%s: replaces %s by %s, which is not its folder", name, r.Old.Path, r.New.Path))
		}
	}
	for _, r := range file.Require {
		target, ours := strings.CutPrefix(r.Mod.Path, Root+"/")
		if !ours {
			continue
		}
		if !matches(allowed, target) {
			breaches = append(breaches, fmt.Sprintf("%s: %s may not require %s", name, dir, target))
		}
		if !replaced[target] {
			breaches = append(breaches, fmt.Sprintf("%s: requires %s without a replace line: GOWORK=off cannot find it", name, target))
		}
	}
	return breaches, nil
}

// checkImports looks at every import of every Go file of a module, tests and files behind build tags included.
func checkImports(fsys fs.FS, dir string, allowed, modules []string) ([]string, error) {
	var breaches []string
	err := walk(fsys, dir, func(name string) error {
		if path.Ext(name) != ".go" || owner(name, modules) != dir {
			return nil
		}
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return fmt.Errorf("walls: %w", err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return fmt.Errorf("walls: %w", err)
		}
		for _, spec := range file.Imports {
			if target := importedModule(spec, modules); target != "" && target != dir && !matches(allowed, target) {
				breaches = append(breaches, fmt.Sprintf("%s: %s may not import %s", name, dir, target))
			}
		}
		return nil
	})
	return breaches, err
}

// checkGoWork makes sure that the workspace holds every module except those that stand alone.
func checkGoWork(fsys fs.FS, modules []string) ([]string, error) {
	data, err := fs.ReadFile(fsys, "go.work")
	if err != nil {
		return nil, fmt.Errorf("walls: %w", err)
	}
	file, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil, fmt.Errorf("walls: %w", err)
	}
	used := map[string]bool{}
	for _, u := range file.Use {
		used[path.Clean(u.Path)] = true
	}
	var breaches []string
	for _, dir := range modules {
		if alone := standsAlone(dir); used[dir] == alone {
			breaches = append(breaches, fmt.Sprintf("go.work: %s: in the workspace is %t, want %t", dir, used[dir], !alone))
		}
	}
	return breaches, nil
}

// importedModule returns the folder of the module that the import belongs to, or "" when it is not one of ours.
func importedModule(spec *ast.ImportSpec, modules []string) string {
	imported, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return "" // The parser accepts string literals only.
	}
	inside, ours := strings.CutPrefix(imported, Root+"/")
	if !ours {
		return ""
	}
	if module := owner(inside, modules); module != "" {
		return module
	}
	return inside
}

// owner returns the innermost module whose folder holds name, or "".
func owner(name string, modules []string) string {
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if slices.Contains(modules, dir) {
			return dir
		}
	}
	return ""
}

func matches(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, dir)
		return ok && err == nil
	})
}

// walk calls visit for each file below dir that is part of the repository's source.
func walk(fsys fs.FS, dir string, visit func(name string) error) error {
	err := fs.WalkDir(fsys, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			return visit(name)
		}
		base := path.Base(name)
		if name != dir && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata") {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("walls: %w", err)
	}
	return nil
}
