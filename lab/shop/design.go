package shop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The designs that one machine can run: the shop's shapes.
const (
	Split          = "split"            // a process for each service, and the gateway
	SharedPool     = "shared-pool"      // one process, one pool of workers, and the limits of somebody who never thought of any
	PoolPerFeature = "pool-per-feature" // one process, a pool for each feature
	Roles          = "roles"            // the one process's program, once for each feature and once as the front
)

// Designs lists them; the first is what an empty Options.Design stands for.
func Designs() []string { return []string{Split, SharedPool, PoolPerFeature, Roles} }

// Monolith is the process that holds several services: in the designs of one process its name, and that of its database; and
// whoever runs its program is that user of the broker.
const Monolith = "monolith"

// everything is what the monolith holds, in the order of the split's table.
func everything() []string { return []string{"checkout", "search", "recs", "inventory", "payment"} }

// services is the design's table.
func (o Options) services() []Service {
	switch o.Design {
	case SharedPool:
		// The article's monolith: whoever asks gives up after a second, and until then everybody may wait.
		return monolith(map[string]string{"POOLS": "shared", "POOL_SIZE": "16", "POOL_QUEUE": "100000",
			"CHECKOUT_TIMEOUT": "1s", "SEARCH_TIMEOUT": "1s", "RECS_TIMEOUT": "1s"})
	case PoolPerFeature:
		return monolith(map[string]string{"POOLS": "per-feature", "POOL_SIZE": "16"})
	case Roles:
		return roles()
	}
	return services()
}

// monolith is the table of one process, at the addresses of the gateway.
func monolith(env map[string]string) []Service {
	return []Service{{
		Name: Monolith, module: "services/monolith", ports: map[string]int{"http": 8080, "grpc": 50051, "admin": 9080},
		holds: everything(), oneDatabase: true, env: env,
	}}
}

// roles is the split's table with the monolith's program in each place. Inventory and payment go with checkout.
func roles() []Service {
	var out []Service
	for _, s := range services() {
		role := Service{Name: s.Name, module: "services/monolith", program: Monolith, ports: s.ports,
			// Every role speaks HTTP; only the front's address is known.
			env: map[string]string{"FEATURES": s.Name, "POOLS": "per-feature", "POOL_SIZE": "16", "HTTP_ADDR": address(0)}}
		switch s.Name {
		case "inventory", "payment":
			continue
		case "gateway":
			role.env = map[string]string{"FEATURES": "none", "GRPC_ADDR": address(0)}
		case "checkout":
			role.holds = []string{"checkout", "inventory", "payment"}
		default:
			role.holds = []string{s.Name}
		}
		for _, feature := range []string{"checkout", "search", "recs"} {
			if feature != s.Name {
				role.calls = append(role.calls, feature)
			}
		}
		out = append(out, role)
	}
	return out
}

// Database is a database of the design, with a role of its name. The services are those whose tables are in it, each in a
// schema of its own where Schemas says so.
type Database struct {
	Name     string
	Services []string
	Schemas  bool
	// Connections and OwnerConnections are the most that the role and the owner's role may hold.
	Connections, OwnerConnections int
}

// Databases lists the databases of services. The designs of one process have one apart, as such a shop would: what is sold
// there is not what the others have sold.
func (o Options) Databases(services []Service) ([]Database, error) {
	var out []Database
	for _, s := range services {
		count := o.Connections
		held := s.holds
		if s.Database {
			held = []string{s.Name}
		} else {
			count = o.heldConnections
		}
		if len(held) == 0 {
			continue
		}
		connections, owner, err := count(s)
		if err != nil {
			return nil, err
		}
		if s.oneDatabase {
			out = append(out, Database{s.Name, held, true, connections * len(held), owner * len(held)})
			continue
		}
		for _, name := range held {
			out = append(out, Database{name, []string{name}, false, connections, owner})
		}
	}
	return out, nil
}

// Place completes the database's URL for one of its services.
func (d Database) Place(url, service string) string {
	if !d.Schemas {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "search_path=" + service
}

// Data names the databases and events that the design works on: the designs of several processes share theirs.
func (o Options) Data() string {
	if o.Design == SharedPool || o.Design == PoolPerFeature {
		return Monolith
	}
	return Split
}

// heldConnections is Connections for one of the services that s holds, whose pools follow from the workers.
func (o Options) heldConnections(s Service) (service, owner int, err error) {
	env := maps.Clone(o.Env[s.Name])
	if env == nil {
		env = map[string]string{}
	}
	workers := env["POOL_SIZE"]
	if workers == "" {
		workers = s.env["POOL_SIZE"]
	}
	n, err := strconv.Atoi(workers)
	if err != nil || n < 1 {
		return 0, 0, fmt.Errorf("--env %s.POOL_SIZE=%s: must be a number of workers", s.Name, workers)
	}
	const housekeeping = 2
	env["DB_MAX_CONNS"] = strconv.Itoa(n + housekeeping)
	held := Options{Replicas: o.Replicas, Env: map[string]map[string]string{s.Name: env}}
	return held.Connections(s)
}

// Serves are the services that the process answers for over gRPC.
func (s Service) Serves() []string {
	switch {
	case len(s.holds) > 0:
		return slices.Clone(s.holds)
	case s.ports["grpc"] != 0:
		return []string{s.Name}
	}
	return nil
}

// User is the process's user of the broker.
func (s Service) User() string {
	if s.module == "services/monolith" {
		return Monolith
	}
	return s.Name
}

// heldDatabases are the variables for the databases of the services that s holds.
func (o Options) heldDatabases(s Service, access map[string]Access) map[string]string {
	env := map[string]string{}
	for _, held := range s.holds {
		prefix := strings.ToUpper(held)
		env[prefix+"_DATABASE_URL"] = o.through(Postgres, access[held].Database)
		env[prefix+"_MIGRATE_DATABASE_URL"] = o.through(Postgres, access[held].MigrateDatabase)
	}
	return env
}
