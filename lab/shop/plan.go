package shop

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is one process of the shop, ready to be started.
type Process struct {
	Name      string // the service's, with -2, -3, … for further replicas
	Service   string
	Program   string
	Env       []string
	Addresses map[string]string // by protocol
	Serves    []string          // services that it answers for over gRPC
}

// Access is what a service needs to reach what is not a service.
type Access struct {
	NATS            string // URL with the service's user
	Database        string // URL with the service's role; "" without a database
	MigrateDatabase string // URL with the owner's role
}

// Plan returns the processes of services. bin is where their programs lie, access is by service, environ is lab's own
// environment, of which a process gets only what cannot change where the shop's parts find each other.
func (o Options) Plan(services []Service, bin string, access map[string]Access, environ []string) []Process {
	var out []Process
	for _, s := range services {
		for replica := range o.replicas(s.Name) {
			p := Process{Name: s.Name, Service: s.Name, Program: filepath.Join(bin, s.binary()), Serves: s.Serves(),
				Addresses: s.addresses(replica, o.PortOffset)}
			if replica > 0 {
				p.Name += "-" + strconv.Itoa(replica+1)
			}
			p.Env = append(inherited(environ), o.environment(s, p, access)...)
			out = append(out, p)
		}
	}
	return out
}

// environment is the process's own part, sorted by variable.
func (o Options) environment(s Service, p Process, access map[string]Access) []string {
	env := map[string]string{
		"DRAIN_DELAY":       "0s", // nobody has to hear of a drain here: the gateway sees a closed port at once
		"FAULTS_ENABLED":    "true",
		"NATS_URL":          o.through(NATS, access[s.User()].NATS),
		"OTEL_SERVICE_NAME": s.Name,
		// Replicas share a host name here, so each is told its own.
		"INSTANCE_ID":              p.Name,
		"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=" + p.Name,
	}
	for protocol, addr := range p.Addresses {
		env[strings.ToUpper(protocol)+"_ADDR"] = addr
	}
	if s.Database {
		// A relay that is killed here is back in seconds; what it had claimed need not wait for the default's half minute.
		env["RELAY_LEASE"] = "10s"
		env["DATABASE_URL"], env["MIGRATE_DATABASE_URL"] = o.through(Postgres, access[s.Name].Database), o.through(Postgres, access[s.Name].MigrateDatabase)
	}
	if o.Traces {
		env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://" + o.OTLPAddress()
	}
	for _, name := range s.calls {
		env[strings.ToUpper(name)+"_ADDR"] = o.Target(name)
	}
	maps.Copy(env, o.heldDatabases(s, access))
	maps.Copy(env, s.env)
	maps.Copy(env, o.Env[s.Name])
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// Target is the gRPC target that reaches every replica of a service. A service without replicas keeps its address, at
// which nobody answers.
func (o Options) Target(name string) string {
	table := o.services()
	index := slices.IndexFunc(table, func(s Service) bool { return s.Name == name })
	var addresses []string
	for replica := range max(o.replicas(name), 1) {
		addresses = append(addresses, table[index].addresses(replica, o.PortOffset)["grpc"])
	}
	if len(addresses) == 1 {
		return "dns:///" + addresses[0]
	}
	return "static:///" + strings.Join(addresses, ",")
}

// inherited keeps what a process may take from the shell that lab was started in: where programs and certificates are, the
// Go runtime's switches, telemetry and logging.
func inherited(environ []string) []string {
	var out []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		switch {
		case slices.Contains([]string{"PATH", "HOME", "USER", "TMPDIR", "TZ", "LANG"}, name),
			slices.Contains([]string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GORACE", "GOCOVERDIR"}, name),
			strings.HasPrefix(name, "OTEL_"), strings.HasPrefix(name, "LOG_"), strings.HasPrefix(name, "SSL_"):
			out = append(out, line)
		}
	}
	return out
}

// Connections returns how many database connections the service may hold in all: what its pools may, for every replica
// and for one more, because a process that has just died may still be holding its own when the next one starts.
func (o Options) Connections(s Service) (service, owner int, err error) {
	perReplica := 0
	for _, pool := range []struct {
		variable string
		size     int
	}{{"DB_MAX_CONNS", 16}, {"RELAY_DB_MAX_CONNS", 2}, {"CONSUMER_DB_MAX_CONNS", 4}} {
		size := pool.size
		if set, ok := o.Env[s.Name][pool.variable]; ok {
			if size, err = strconv.Atoi(set); err != nil || size < 0 || size > 10_000 {
				return 0, 0, fmt.Errorf("--env %s.%s=%s: must be a number of connections", s.Name, pool.variable, set)
			}
		}
		perReplica += size
	}
	// A migration takes one connection for its lock and one or two for its work.
	const perMigration = 3
	processes := o.replicas(s.Name) + 1
	return perReplica * processes, perMigration * processes, nil
}
