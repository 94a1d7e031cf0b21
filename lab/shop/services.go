// Package shop says what the shop on one machine consists of: which services there are, where each listens, what
// environment each is given, and how their programs are built. It starts nothing.
package shop

import (
	"fmt"
	"maps"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Host is where everything listens: nothing of the lab can be reached from another machine.
const Host = "127.0.0.1"

const (
	natsPort   = 4222
	otlpPort   = 4317
	jaegerPort = 16686
	// replicaStep lies between the ports of one replica and the next.
	replicaStep = 10
	maxReplicas = 20
)

// Service is one line of the shop's table.
type Service struct {
	Name   string
	module string         // folder of its Go module, from the root
	ports  map[string]int // of the first replica, by protocol: http, grpc, admin
	// Database is set for a service with a database of its own.
	Database bool
	// calls are the services whose addresses it is given.
	calls []string

	program     string            // of its module, when it is not called as the service
	env         map[string]string // what the design sets
	holds       []string          // services within the process, when it is not one service
	oneDatabase bool              // those have one database together
}

// services is the split's table: the names and ports of the design documents.
func services() []Service {
	grpc := func(name string, index int, calls ...string) Service {
		return Service{Name: name, module: "services/" + name, Database: true, calls: calls,
			ports: map[string]int{"grpc": 50051 + index, "admin": 9081 + index}}
	}
	return []Service{
		// checkout calls recs only when a lesson switches that on.
		grpc("checkout", 0, "recs"),
		grpc("search", 1),
		grpc("recs", 2),
		grpc("inventory", 3),
		grpc("payment", 4),
		{Name: "gateway", module: "gateway", ports: map[string]int{"http": 8080, "admin": 9080}, calls: []string{"checkout", "search", "recs"}},
	}
}

// Names lists every service of the design.
func (o Options) Names() []string {
	var names []string
	for _, s := range o.services() {
		names = append(names, s.Name)
	}
	return names
}

// Present lists the services of the design whose program exists under root, in the order of the table.
func (o Options) Present(root string) []Service {
	return slices.DeleteFunc(o.services(), func(s Service) bool {
		_, err := os.Stat(filepath.Join(root, s.folder()))
		return err != nil
	})
}

// folder is that of the service's main package, from the root.
func (s Service) folder() string { return filepath.Join(s.module, "cmd", s.binary()) }

// binary is the name of its program.
func (s Service) binary() string {
	if s.program != "" {
		return s.program
	}
	return s.Name
}

// addresses returns where replica (0 is the first) listens, by protocol.
func (s Service) addresses(replica, offset int) map[string]string {
	out := map[string]string{}
	for protocol, port := range s.ports {
		out[protocol] = address(port + replica*replicaStep + offset)
	}
	return out
}

func address(port int) string { return net.JoinHostPort(Host, strconv.Itoa(port)) }

// NATSPort is where the broker listens.
func (o Options) NATSPort() int { return natsPort + o.PortOffset }

// OTLPAddress is where traces go when Traces is set.
func (o Options) OTLPAddress() string { return address(otlpPort + o.PortOffset) }

// JaegerAddress is where they are shown.
func (o Options) JaegerAddress() string { return address(jaegerPort + o.PortOffset) }

// Options are what a user may change about the shop. The zero value changes nothing.
type Options struct {
	Design     string                       // one of Designs; empty is Split
	PortOffset int                          // added to every fixed port
	Replicas   map[string]int               // by service; 1 where it is absent, 0 leaves the service out
	Env        map[string]map[string]string // by service, then variable
	Traces     bool                         // every process sends its traces to OTLPAddress
	Via        map[string]string            // where services reach the database server (Postgres) and the broker (NATS) instead
}

// What Options.Via may name.
const (
	Postgres = "postgres"
	NATS     = "nats"
)

// Validate refuses services that do not exist, numbers of replicas and ports that cannot be.
func (o Options) Validate() error {
	if o.Design != "" && !slices.Contains(Designs(), o.Design) {
		return fmt.Errorf("--design %s: must be one of %s", o.Design, strings.Join(Designs(), ", "))
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(o.Replicas)), slices.Sorted(maps.Keys(o.Env))) {
		if !slices.Contains(o.Names(), name) {
			return fmt.Errorf("no service is called %q; there are %v", name, o.Names())
		}
	}
	for name, n := range o.Replicas {
		if n < 0 || n > maxReplicas {
			return fmt.Errorf("--replicas %s=%d: must be between 0 and %d", name, n, maxReplicas)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Via)) {
		if name != Postgres && name != NATS {
			return fmt.Errorf("--via %s: must be %s or %s", name, Postgres, NATS)
		}
		if _, _, err := net.SplitHostPort(o.Via[name]); err != nil {
			return fmt.Errorf("--via %s: %w", name, err)
		}
	}
	highest := natsPort
	for _, s := range o.services() {
		for _, port := range s.ports {
			highest = max(highest, port+(max(o.replicas(s.Name), 1)-1)*replicaStep)
		}
	}
	if o.PortOffset < 0 || highest+o.PortOffset > 65535 {
		return fmt.Errorf("--port-offset %d: must be between 0 and %d, so that every port stays below 65536", o.PortOffset, 65535-highest)
	}
	return nil
}

// through returns the URL at which a service reaches the server: url, or the same at the other address.
func (o Options) through(server, url string) string {
	address, ok := o.Via[server]
	parsed, err := neturl.Parse(url)
	if !ok || err != nil || url == "" {
		return url
	}
	parsed.Host = address
	return parsed.String()
}

func (o Options) replicas(service string) int {
	if n, ok := o.Replicas[service]; ok {
		return n
	}
	return 1
}
