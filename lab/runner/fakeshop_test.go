//go:build unix

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// fakeService is a service as far as lab can see: it listens where its environment says, answers /readyz, shows its
// environment, and ends as it is told.
const fakeService = `package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if why := os.Getenv("FAIL_AT_START"); why != "" {
		fmt.Println("cannot start:", why)
		os.Exit(3)
	}
	for _, name := range []string{"GRPC_ADDR", "HTTP_ADDR"} {
		if address := os.Getenv(name); address != "" {
			if _, err := net.Listen("tcp", address); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	}
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Join(os.Environ(), "\n")) })
	http.HandleFunc("/exit", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.FormValue("code"))
		os.Exit(code)
	})
	go func() { fmt.Println(http.ListenAndServe(os.Getenv("ADMIN_ADDR"), nil)); os.Exit(1) }()
	fmt.Println("serving")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	fmt.Println("drained")
}
`

// fakeProject writes a workspace with the given services and returns its root.
func fakeProject(t *testing.T, services ...string) string {
	t.Helper()
	root := t.TempDir()
	work := "go 1.26.0\n"
	for _, name := range services {
		module := "services/" + name
		if name == "gateway" {
			module = name
		}
		work += "use ./" + module + "\n"
		write(t, filepath.Join(root, module, "go.mod"), fmt.Sprintf("module example.com/%s\n\ngo 1.26.0\n", name))
		write(t, filepath.Join(root, module, "cmd", name, "main.go"), fakeService)
	}
	write(t, filepath.Join(root, "go.work"), work)
	return root
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
