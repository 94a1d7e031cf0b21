//go:build unix

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Tenant is a service with a database of its own. The service's role, named after the service, reads and writes rows;
// the owner's role makes and changes tables (migrations) and is used for nothing else.
type Tenant struct {
	Service       string
	Password      string // of the service's role
	OwnerPassword string
	// Schemas are those that the database has besides public, one for each service that shares it.
	Schemas []string
	// Connections and OwnerConnections limit how many each role may hold, so that one service cannot use up the server.
	Connections      int
	OwnerConnections int
	// Unlimited leaves both roles without limits of any kind: they may hold whatever the server has, for as long as they like.
	Unlimited bool
}

// Owner is the name of the role that owns the service's database.
func Owner(service string) string { return service + "_owner" }

// limits are what the server holds a role to.
type limits struct {
	connections int
	times       map[string]time.Duration // by setting
}

func unlimited() limits { return limits{connections: -1} }

// serviceLimits are short in time, as a service's statements are.
func (t Tenant) serviceLimits() limits {
	if t.Unlimited {
		return unlimited()
	}
	return limits{t.Connections, map[string]time.Duration{
		"statement_timeout":                   30 * time.Second,
		"lock_timeout":                        5 * time.Second,
		"idle_in_transaction_session_timeout": 30 * time.Second,
	}}
}

// ownerLimits give a migration time to wait for the service's statements.
func (t Tenant) ownerLimits() limits {
	if t.Unlimited {
		return unlimited()
	}
	return limits{t.OwnerConnections, map[string]time.Duration{
		"statement_timeout":                   5 * time.Minute,
		"lock_timeout":                        time.Minute,
		"idle_in_transaction_session_timeout": 5 * time.Minute,
	}}
}

// reserved is how many connections are left for the administrator, `lab check` and the probes.
const reserved = 20

// MaxConnections is what the server must allow so that every role can use its limit. A role without limits adds as much.
func MaxConnections(tenants []Tenant) int {
	sum := reserved
	for _, t := range tenants {
		sum += t.Connections + t.OwnerConnections
	}
	return sum
}

// Provision gives each tenant its database and roles. It may be repeated: what exists is brought to the same state.
func (c *Cluster) Provision(ctx context.Context, tenants []Tenant) (err error) {
	admin, err := c.Admin(ctx, superuser)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close(ctx)) }()
	// Every role is a member of PUBLIC, which may connect to a new database unless told otherwise.
	if _, err := admin.Exec(ctx, `REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC`); err != nil {
		return fmt.Errorf("close the maintenance databases: %w", err)
	}
	for _, t := range tenants {
		if err := c.provision(ctx, admin, t); err != nil {
			return fmt.Errorf("database %s: %w", t.Service, err)
		}
	}
	return nil
}

func (c *Cluster) provision(ctx context.Context, admin *pgx.Conn, t Tenant) error {
	if err := role(ctx, admin, Owner(t.Service), t.OwnerPassword, t.ownerLimits()); err != nil {
		return err
	}
	if err := role(ctx, admin, t.Service, t.Password, t.serviceLimits()); err != nil {
		return err
	}
	var exists bool
	if err := admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, t.Service).Scan(&exists); err != nil {
		return err
	}
	names := strings.NewReplacer("{service}", pgx.Identifier{t.Service}.Sanitize(), "{owner}", pgx.Identifier{Owner(t.Service)}.Sanitize())
	if !exists {
		if _, err := admin.Exec(ctx, names.Replace(`CREATE DATABASE {service} OWNER {owner}`)); err != nil {
			return err
		}
	}
	for _, statement := range []string{
		`REVOKE ALL ON DATABASE {service} FROM PUBLIC`,
		`GRANT CONNECT ON DATABASE {service} TO {service}`,
	} {
		if _, err := admin.Exec(ctx, names.Replace(statement)); err != nil {
			return err
		}
	}
	return c.grantRows(ctx, t, names)
}

// grantRows lets the service's role use rows, and only rows, of what its owner made and will make.
func (c *Cluster) grantRows(ctx context.Context, t Tenant, names *strings.Replacer) (err error) {
	conn, err := c.Admin(ctx, t.Service)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, schema := range append([]string{"public"}, t.Schemas...) {
		inSchema := strings.NewReplacer("{schema}", pgx.Identifier{schema}.Sanitize())
		for _, statement := range []string{
			`CREATE SCHEMA IF NOT EXISTS {schema}`,
			`ALTER SCHEMA {schema} OWNER TO {owner}`,
			`REVOKE ALL ON SCHEMA {schema} FROM PUBLIC`,
			`GRANT USAGE ON SCHEMA {schema} TO {service}`,
			`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {service}`,
			`GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {service}`,
			`ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {service}`,
			`ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT USAGE, SELECT ON SEQUENCES TO {service}`,
		} {
			if _, err := conn.Exec(ctx, names.Replace(inSchema.Replace(statement))); err != nil {
				return err
			}
		}
	}
	return nil
}

// role makes a role or brings it to the same state. A password is letters and digits (statedir.Secrets), and the server
// still does the quoting, because ALTER ROLE takes no parameters.
func role(ctx context.Context, admin *pgx.Conn, name, password string, held limits) error {
	var exists bool
	if err := admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, name).Scan(&exists); err != nil {
		return err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if !exists {
		if _, err := admin.Exec(ctx, `CREATE ROLE `+quoted); err != nil {
			return err
		}
	}
	var alter string
	const options = `SELECT format('ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
		CONNECTION LIMIT %s PASSWORD %L', $1::text, $2::text, $3::text)`
	if err := admin.QueryRow(ctx, options, name, strconv.Itoa(held.connections), password).Scan(&alter); err != nil {
		return err
	}
	if _, err := admin.Exec(ctx, alter); err != nil {
		return err
	}
	if _, err := admin.Exec(ctx, `ALTER ROLE `+quoted+` RESET ALL`); err != nil {
		return err
	}
	for setting, limit := range held.times {
		statement := fmt.Sprintf("ALTER ROLE %s SET %s = '%dms'", quoted, pgx.Identifier{setting}.Sanitize(), limit.Milliseconds())
		if _, err := admin.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
