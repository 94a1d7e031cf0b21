// Command render makes the files that come from the chart: k8s/{kind,minikube,prod} and the broker's configuration in the
// chart. It is what `make manifests` runs, at the root of the repository. Files that nothing makes any more are removed.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"example.com/watertight/test/manifests/target"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	conf, err := target.NATSConf()
	if err != nil {
		return err
	}
	// The manifests contain the configuration, so it comes first.
	if err := write(root, target.NATSConfig, conf); err != nil {
		return err
	}
	manifests, err := target.Manifests(root)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		if err := write(root, name, manifests[name]); err != nil {
			return err
		}
	}
	return removeLeftovers(root, manifests)
}

func write(root, name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil { //nolint:gosec // source, which everybody may read
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func removeLeftovers(root string, manifests map[string][]byte) error {
	for name, values := range target.Targets() {
		files, err := filepath.Glob(filepath.Join(root, "k8s", name, "*.yaml"))
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		for _, file := range files {
			relative, err := filepath.Rel(root, file)
			if err != nil {
				return fmt.Errorf("list: %w", err)
			}
			if _, made := manifests[relative]; made || relative == values {
				continue
			}
			if err := os.Remove(file); err != nil {
				return fmt.Errorf("remove: %w", err)
			}
		}
	}
	return nil
}
