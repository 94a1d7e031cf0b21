// Package shop says what the shop on one machine consists of: which services there are, where each listens, what
// environment each is given, and how their programs are built. It starts nothing.
package shop

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Host is where everything listens: nothing of the lab can be reached from another machine.
const Host = "127.0.0.1"

const (
	natsPort = 4222
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
}

// services is the table: DESIGN's names and ports.
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

// Names lists every service the table knows.
func Names() []string {
	var names []string
	for _, s := range services() {
		names = append(names, s.Name)
	}
	return names
}

// Present lists the services whose program exists under root, in the order of the table.
func Present(root string) []Service {
	return slices.DeleteFunc(services(), func(s Service) bool {
		_, err := os.Stat(filepath.Join(root, s.program()))
		return err != nil
	})
}

// program is the folder of the service's main package, from the root.
func (s Service) program() string { return filepath.Join(s.module, "cmd", s.Name) }

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

// Options are what a user may change about the shop. The zero value changes nothing.
type Options struct {
	PortOffset int                          // added to every fixed port
	Replicas   map[string]int               // by service; 1 where it is absent, 0 leaves the service out
	Env        map[string]map[string]string // by service, then variable
}

// Validate refuses services that do not exist, numbers of replicas and ports that cannot be.
func (o Options) Validate() error {
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(o.Replicas)), slices.Sorted(maps.Keys(o.Env))) {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("no service is called %q; there are %v", name, Names())
		}
	}
	for name, n := range o.Replicas {
		if n < 0 || n > maxReplicas {
			return fmt.Errorf("--replicas %s=%d: must be between 0 and %d", name, n, maxReplicas)
		}
	}
	highest := natsPort
	for _, s := range services() {
		for _, port := range s.ports {
			highest = max(highest, port+(max(o.replicas(s.Name), 1)-1)*replicaStep)
		}
	}
	if o.PortOffset < 0 || highest+o.PortOffset > 65535 {
		return fmt.Errorf("--port-offset %d: must be between 0 and %d, so that every port stays below 65536", o.PortOffset, 65535-highest)
	}
	return nil
}

func (o Options) replicas(service string) int {
	if n, ok := o.Replicas[service]; ok {
		return n
	}
	return 1
}
