//go:build unix

package runner

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"example.com/watertight/lab/jaeger"
	"example.com/watertight/lab/supervise"
)

// Jaeger is the name of the process that keeps the traces.
const Jaeger = "jaeger"

// startJaeger finds or builds a Jaeger and starts it, when traces are wanted.
func (s *session) startJaeger(ctx context.Context, g *group) error {
	if !s.options.Shop.Traces {
		return nil
	}
	locator, err := jaeger.NewLocator(s.options.Environ, s.sayf)
	if err != nil {
		return err
	}
	found, err := locator.Find(ctx)
	if err != nil {
		return err
	}
	at := jaeger.Addresses{OTLP: s.options.Shop.OTLPAddress(), UI: s.options.Shop.JaegerAddress()}
	file := filepath.Join(s.options.Dir.Path(), "jaeger.yaml")
	if err := os.WriteFile(file, []byte(found.Config(at)), 0o644); err != nil { //nolint:gosec // a container's user reads it, and it holds no secret
		return fmt.Errorf("jaeger: %w", err)
	}
	path, args := found.Command(at, file)
	m, err := s.start(ctx, g, program{
		name: Jaeger, service: Jaeger, quiet: !s.options.Verbose,
		command:   supervise.Command{Path: path, Args: args, Env: s.options.Environ, Dir: s.options.Dir.Path(), DeathSignal: syscall.SIGTERM},
		prepare:   func(ctx context.Context) error { return found.Clear(ctx, at, s.options.Environ) },
		ready:     func(ctx context.Context) error { return answers(ctx, "http://"+at.UI+"/api/services") },
		stop:      []supervise.StopStep{{Signal: syscall.SIGTERM, Wait: 5 * time.Second}},
		addresses: map[string]string{"otlp": at.OTLP, "ui": at.UI},
	})
	if err != nil {
		return err
	}
	if err := waitReady(ctx, s.options.ReadyTimeout, m); err != nil {
		return err
	}
	s.sayf("traces go to Jaeger (%s)", found.From)
	if !found.Page {
		s.sayf("it has no page of its own: lab trace shows what it has")
	}
	return nil
}

// answers returns nil when a GET of the address is answered with 200.
func answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // a probe must not keep a dying process waiting
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
