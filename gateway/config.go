package gateway

import (
	"errors"
	"fmt"
	"math"
	"time"

	"example.com/watertight/gateway/clientip"
	"example.com/watertight/platform/lifecycle"
)

// Config is how the edge serves.
type Config struct {
	Addr           string           `env:"HTTP_ADDR" envDefault:":8080" help:"address of the HTTP server"`
	ClientRate     float64          `env:"CLIENT_RATE" envDefault:"0" help:"requests a second for each client, in bursts of one second's worth; 0 is no limit"`
	TrustedProxies clientip.Proxies `env:"TRUSTED_PROXIES" help:"networks (10.0.0.0/8,...) whose X-Forwarded-For is believed"`

	ReadHeaderTimeout time.Duration `env:"HTTP_READ_HEADER_TIMEOUT" envDefault:"5s" help:"how long a client may take to send a request's head"`
	ReadTimeout       time.Duration `env:"HTTP_READ_TIMEOUT" envDefault:"10s" help:"how long it may take to send the whole request"`
	WriteTimeout      time.Duration `env:"HTTP_WRITE_TIMEOUT" envDefault:"10s" help:"how long sending an answer may take, or one event of a stream"`
	IdleTimeout       time.Duration `env:"HTTP_IDLE_TIMEOUT" envDefault:"75s" help:"how long a connection may wait for its next request"`
	MaxHeaderBytes    int           `env:"HTTP_MAX_HEADER_BYTES" envDefault:"16384" help:"most bytes in a request's head"`

	MaxEventStreams   int           `env:"MAX_EVENT_STREAMS" envDefault:"256" help:"order event streams open at once"`
	MaxBridgeStreams  int           `env:"MAX_BRIDGE_STREAMS" envDefault:"32" help:"people who watch the bridge at once"`
	EventHeartbeat    time.Duration `env:"EVENT_HEARTBEAT" envDefault:"10s" help:"pause after which a quiet event stream sends a comment"`
	EventStreamMaxAge time.Duration `env:"EVENT_STREAM_MAX_AGE" envDefault:"10m" help:"age at which an event stream ends; browsers come back"`
}

// Validate checks the limits.
func (c Config) Validate() error {
	var errs []error
	if c.ClientRate < 0 || math.IsNaN(c.ClientRate) || math.IsInf(c.ClientRate, 0) {
		errs = append(errs, errors.New("CLIENT_RATE: must be 0 or more requests per second"))
	}
	for _, t := range []struct {
		name  string
		value time.Duration
	}{
		{"HTTP_READ_HEADER_TIMEOUT", c.ReadHeaderTimeout}, {"HTTP_READ_TIMEOUT", c.ReadTimeout},
		{"HTTP_WRITE_TIMEOUT", c.WriteTimeout}, {"HTTP_IDLE_TIMEOUT", c.IdleTimeout}, {"EVENT_HEARTBEAT", c.EventHeartbeat},
		{"EVENT_STREAM_MAX_AGE", c.EventStreamMaxAge},
	} {
		if t.value <= 0 {
			errs = append(errs, fmt.Errorf("%s: must be more than 0s", t.name))
		}
	}
	if c.MaxHeaderBytes < 1024 {
		errs = append(errs, errors.New("HTTP_MAX_HEADER_BYTES: must be at least 1024"))
	}
	if c.MaxEventStreams < 1 {
		errs = append(errs, errors.New("MAX_EVENT_STREAMS: must be at least 1"))
	}
	if c.MaxBridgeStreams < 1 {
		errs = append(errs, errors.New("MAX_BRIDGE_STREAMS: must be at least 1"))
	}
	return errors.Join(errs...)
}

// ProcessConfig is lifecycle.Config with the edge's admin address, beside those of the services.
type ProcessConfig struct {
	LogLevel     string        `env:"LOG_LEVEL" envDefault:"info" help:"debug, info, warn or error"`
	LogFormat    string        `env:"LOG_FORMAT" help:"json or text; empty is text on a terminal, json elsewhere"`
	AdminAddr    string        `env:"ADMIN_ADDR" envDefault:":9080" help:"address of /livez, /readyz and /metrics"`
	DrainDelay   time.Duration `env:"DRAIN_DELAY" envDefault:"5s" help:"how long to go on serving after SIGTERM, while the news spreads"`
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT" envDefault:"15s" help:"how long requests in flight may take after that"`
	Pprof        bool          `env:"PPROF_ENABLED" envDefault:"false" help:"serve /debug/pprof on the admin address"`
}

// Validate checks the durations.
func (c ProcessConfig) Validate() error { return lifecycle.Config(c).Validate() }
