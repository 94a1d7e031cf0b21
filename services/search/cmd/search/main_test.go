package main

import (
	"errors"
	"strings"
	"testing"

	"example.com/watertight/platform/config"
)

func TestRun_HelpPrintsEveryVariable(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"--help"}, nil, &out); !errors.Is(err, config.ErrHelp) {
		t.Fatalf("got %v, want ErrHelp", err)
	}
	for _, name := range []string{"DATABASE_URL", "GRPC_ADDR", "ADMIN_ADDR", "SEARCH_REFRESH_INTERVAL", "OTEL_SERVICE_NAME"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("--help does not name %s:\n%s", name, out.String())
		}
	}
}

func TestRun_SaysWhichVariableIsWrong(t *testing.T) {
	for want, environ := range map[string][]string{
		"DATABASE_URL":            nil,
		"SEARCH_REFRESH_INTERVAL": {"DATABASE_URL=postgres://search@localhost/search", "SEARCH_REFRESH_INTERVAL=0s"},
		"POOL_SIZE":               {"DATABASE_URL=postgres://search@localhost/search", "POOL_SIZE=many"},
		"--help":                  nil,
	} {
		var args []string
		if want == "--help" {
			args = []string{"serve"}
		}
		if err := run(t.Context(), args, environ, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v %v: got %v, want an error that names %s", args, environ, err, want)
		}
	}
}
