//go:build unix

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/watertight/lab/natsserver"
	"example.com/watertight/lab/pgserver"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
)

// infrastructure is what the services stand on: the database server and the broker.
type infrastructure struct {
	postgres, nats *group
	access         map[string]shop.Access
	major          int // of PostgreSQL
}

// end ends the broker, then the database.
func (i *infrastructure) end() {
	i.nats.end()
	i.postgres.end()
}

// startInfrastructure starts both side by side. What it returns must be ended even when it fails.
func (s *session) startInfrastructure(ctx context.Context, databases []shop.Database) (*infrastructure, error) {
	i := &infrastructure{postgres: &group{}, nats: &group{}, access: map[string]shop.Access{}}
	secrets, err := s.secrets(databases)
	if err != nil {
		return i, err
	}
	var broker natsserver.Config
	starting := start(ctx, func(ctx context.Context) (err error) {
		broker, err = s.startNATS(ctx, i.nats, secrets)
		return err
	})
	cluster, err := s.startPostgres(ctx, i.postgres, databases, secrets)
	if err != nil {
		starting.cancel()
	}
	if natsErr := starting.wait(); err == nil {
		err = natsErr
	}
	if err != nil {
		return i, err
	}
	i.major = cluster.Programs.Major
	s.amend(func(record *statedir.Instance) {
		record.NATS = broker.URL(natsserver.Admin)
		for _, user := range natsserver.Users() {
			i.access[user] = shop.Access{NATS: broker.URL(user)}
		}
		for _, d := range databases {
			for _, service := range d.Services {
				access := i.access[service]
				access.Database = d.Place(cluster.URL(d.Name, secrets[d.Name], d.Name), service)
				access.MigrateDatabase = d.Place(cluster.URL(pgserver.Owner(d.Name), secrets[pgserver.Owner(d.Name)], d.Name), service)
				record.Databases[service] = access.Database
				i.access[service] = access
			}
		}
	})
	return i, nil
}

const (
	postgresName = "postgres" // of the process, and of its superuser's password
	natsName     = "nats"
	natsSecret   = "nats." // before the name of a broker user
)

// secrets reads or makes all passwords: of database roles under the role's name, of broker users under nats.USER.
func (s *session) secrets(databases []shop.Database) (map[string]string, error) {
	home, err := s.options.Dir.PostgresHome()
	if err != nil {
		return nil, err
	}
	if home != "" && !s.options.Dir.SecretsExist() {
		return nil, fmt.Errorf("the passwords of the data in %s are gone: bring secrets.json back, or give up the data with `lab up --fresh`",
			s.options.Dir.Path())
	}
	store, err := s.options.Dir.Secrets()
	if err != nil {
		return nil, err
	}
	names := []string{postgresName}
	for _, user := range append(natsserver.Users(), natsserver.Admin) {
		names = append(names, natsSecret+user)
	}
	for _, d := range databases {
		names = append(names, d.Name, pgserver.Owner(d.Name))
	}
	out := map[string]string{}
	for _, name := range names {
		if out[name], err = store.Get(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// startPostgres finds or installs the programs, makes the cluster if need be, starts it and gives each service its
// database.
func (s *session) startPostgres(ctx context.Context, g *group, databases []shop.Database, secrets map[string]string) (*pgserver.Cluster, error) {
	cluster, err := s.cluster(ctx, secrets[postgresName])
	if err != nil {
		return nil, err
	}
	tenants := s.tenants(databases, secrets)
	began := time.Now()
	m, err := s.start(ctx, g, program{
		name: postgresName, service: postgresName, quiet: !s.options.Verbose,
		command: supervise.Command{Path: cluster.Program(), Args: cluster.Args(pgserver.MaxConnections(tenants)), Env: cluster.Env(),
			Dir: cluster.Home, RunAs: cluster.RunAs, DeathSignal: syscall.SIGINT},
		prepare:   cluster.ClearStaleLock,
		ready:     cluster.Ready,
		stop:      postgresStop(),
		addresses: map[string]string{"sql": cluster.Address()},
	})
	if err != nil {
		return nil, err
	}
	if err := waitReady(ctx, s.options.ReadyTimeout, m); err != nil {
		return nil, err
	}
	if err := cluster.Provision(ctx, tenants); err != nil {
		return nil, err
	}
	s.sayf("PostgreSQL %d on %s in %s", cluster.Programs.Major, cluster.Address(), time.Since(began).Round(100*time.Millisecond))
	return cluster, nil
}

func (s *session) cluster(ctx context.Context, password string) (*pgserver.Cluster, error) {
	home, err := s.options.Dir.PostgresHome()
	if err != nil {
		return nil, err
	}
	major := 0
	if home != "" {
		if major, err = pgserver.DataMajor(home); err != nil {
			return nil, err
		}
	}
	programs, err := s.programs(ctx, major)
	if err != nil {
		return nil, err
	}
	account, err := pgserver.Account() // after an installation, which may have made it
	if err != nil {
		return nil, err
	}
	chosen, err := pgserver.Home(ctx, programs, account, s.options.Dir.Postgres(), home)
	if err != nil {
		return nil, err
	}
	if chosen != s.options.Dir.Postgres() {
		s.sayf("PostgreSQL's data are in %s, because the user %s, whom it runs as, cannot enter %s", chosen, account.Name, s.options.Dir.Path())
	}
	if err := s.options.Dir.SetPostgresHome(chosen); err != nil {
		return nil, err
	}
	cluster := &pgserver.Cluster{Programs: programs, RunAs: account, Home: chosen, Password: password}
	if err := cluster.ClearStaleLock(ctx); err != nil {
		return nil, err
	}
	return cluster, cluster.Prepare(ctx)
}

func (s *session) programs(ctx context.Context, major int) (pgserver.Programs, error) {
	locator := pgserver.DefaultLocator(s.options.PGBin, s.options.Path)
	programs, err := locator.Find(ctx, major)
	if !errors.Is(err, pgserver.ErrNotFound) {
		return programs, err
	}
	s.sayf("PostgreSQL is not installed here; trying apt-get install postgresql")
	if err := pgserver.Install(ctx, s.options.Environ); err != nil {
		return pgserver.Programs{}, err
	}
	return locator.Find(ctx, major)
}

func (s *session) tenants(databases []shop.Database, secrets map[string]string) []pgserver.Tenant {
	var out []pgserver.Tenant
	for _, d := range databases {
		tenant := pgserver.Tenant{Service: d.Name, Password: secrets[d.Name], OwnerPassword: secrets[pgserver.Owner(d.Name)],
			Connections: d.Connections, OwnerConnections: d.OwnerConnections,
			Unlimited: s.options.UnlimitedDB}
		if d.Schemas {
			tenant.Schemas = d.Services
		}
		out = append(out, tenant)
	}
	return out
}

// startNATS starts the broker, with every user it may ever have, and declares the buckets.
func (s *session) startNATS(ctx context.Context, g *group, secrets map[string]string) (natsserver.Config, error) {
	dir := s.options.Dir.NATS()
	if data := s.options.Shop.Data(); data != shop.Split { // events that wait for one shop's services are not another's
		dir = filepath.Join(dir, data)
	}
	config := natsserver.Config{Host: shop.Host, Port: s.options.Shop.NATSPort(), StoreDir: dir, Passwords: map[string]string{}}
	for _, user := range append(natsserver.Users(), natsserver.Admin) {
		config.Passwords[user] = secrets[natsSecret+user]
	}
	content, err := config.File()
	if err != nil {
		return config, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return config, fmt.Errorf("NATS: %w", err)
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return config, fmt.Errorf("NATS: %w", err)
	}
	admin := config.URL(natsserver.Admin)
	m, err := s.start(ctx, g, program{
		name: natsName, service: natsName, quiet: !s.options.Verbose,
		command: supervise.Command{Path: s.options.Lab, Args: []string{"nats-server", "--config", file}, Env: s.options.Environ,
			Dir: dir, DeathSignal: syscall.SIGKILL}, // a publish is on the disk before it is acknowledged
		ready:     func(ctx context.Context) error { return natsserver.Ready(ctx, admin) },
		stop:      natsStop(),
		addresses: map[string]string{"nats": config.Address()},
	})
	if err != nil {
		return config, err
	}
	if err := waitReady(ctx, s.options.ReadyTimeout, m); err != nil {
		return config, err
	}
	cleared, err := natsserver.Declare(ctx, admin)
	if err != nil {
		return config, err
	}
	if len(cleared) > 0 {
		s.sayf("cleared the faults of the last run: %s", strings.Join(cleared, ", "))
	}
	return config, nil
}

// startService starts a process of the shop, which is ready when its /readyz says so.
func (s *session) startService(ctx context.Context, g *group, p shop.Process) (*member, error) {
	url := "http://" + p.Addresses["admin"] + "/readyz"
	if address, ok := p.Addresses["http"]; ok && p.Name == p.Service {
		s.amend(func(i *statedir.Instance) {
			i.Gateway = "http://" + strings.Replace(address, shop.Host, "localhost", 1)
		})
	}
	return s.start(ctx, g, program{
		name: p.Name, service: p.Service, addresses: p.Addresses, stop: serviceStop(),
		command: supervise.Command{Path: p.Program, Env: p.Env, Dir: s.options.Dir.Path(), DeathSignal: syscall.SIGKILL},
		ready:   func(ctx context.Context) error { return answers(ctx, url) },
	})
}

// list writes addresses as "grpc 127.0.0.1:50051, admin 127.0.0.1:9081".
func list(addresses map[string]string) string {
	var parts []string
	for protocol, address := range addresses {
		parts = append(parts, protocol+" "+address)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
