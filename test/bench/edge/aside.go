package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.com/watertight/platform/config"
	"example.com/watertight/test/bench/edge/hop"
	"example.com/watertight/test/bench/edge/peer"
	"example.com/watertight/test/bench/stage"
)

// RunAside is one of the processes that the project's gateway is compared with, or the services behind them, until ctx ends.
func RunAside(ctx context.Context, args, environ []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes the name of one process", stage.Aside)
	}
	handlers := map[string]func(context.Context, []string, io.Writer) (http.Handler, error){
		"peer": peer.Handler, "services": hop.Services, "one process": hop.OneProcess, "bare hop": hop.Bare, "bare": hop.Direct,
	}
	handler, known := handlers[args[0]]
	if !known {
		return fmt.Errorf("%s: there is no process %q", stage.Aside, args[0])
	}
	cfg, err := config.Load[struct {
		Addr string `env:"HTTP_ADDR,required"`
	}](environ)
	if err != nil {
		return err
	}
	h, err := handler(ctx, environ, out)
	if err != nil {
		return err
	}
	server := &http.Server{ // with the gateway's time-outs
		Addr: cfg.Addr, Handler: h,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
