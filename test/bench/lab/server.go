package lab

import (
	"context"
	"errors"
	"net/http"
	"time"

	"example.com/watertight/platform/config"
)

// Aside is the name of the hidden command with which the benchmarks run the server beside themselves.
const Aside = "load-server"

const (
	addrVariable    = "LOAD_SERVER_ADDR"
	recommendations = "/api/v1/recommendations"
)

// Serve answers like a shop that does nothing, until ctx ends.
func Serve(ctx context.Context, environ []string) error {
	cfg, err := config.Load[struct {
		Addr string `env:"LOAD_SERVER_ADDR,required"`
	}](environ)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	answer := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body)) // the client may have left
		}
	}
	mux.HandleFunc("GET /api/v1/products", answer(`{"products":[{"id":"P01","name":"Lamp","price":{"currency":"GBP","minor":100}}],"next_page_token":""}`))
	mux.HandleFunc("GET "+recommendations, answer(`{"recommendations":[],"degraded":[]}`))
	server := &http.Server{Addr: cfg.Addr, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
