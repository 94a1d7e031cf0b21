package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCluster_RefusesBeforeItTouchesACluster(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(nowhere, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"scenario nosuch": {"nosuch"},
		"scenario export": {"export"},
		"--prove":         {"--prove", "crash"},
		"--rate":          {"--rate=0"},
		"kubeconfig":      {"crash"},
	} {
		var out, errOut strings.Builder
		err := run(t.Context(), append([]string{"cluster", "--kubeconfig", nowhere}, args...), process{out: &out, errOut: &errOut})
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%v: got %v and %q, want an error with %q", args, err, out.String(), want)
		}
	}
}
