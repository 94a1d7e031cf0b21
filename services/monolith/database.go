package monolith

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/postgres"
)

// housekeeping is how many connections are left to a service's own loops: pollers, purges, metrics.
const housekeeping = 2

// database is the configuration of the service's database. No worker waits for a connection, unless DB_MAX_CONNS says so.
func (s Settings) database(service string) postgres.Config {
	cfg := postgres.Config(map[string]Database{
		shop.Checkout: s.Databases.Checkout, inventoryName: s.Databases.Inventory, paymentName: s.Databases.Payment,
		shop.Search: s.Databases.Search, shop.Recs: s.Databases.Recs,
	}[service])
	if cfg.MaxConns == 0 {
		cfg.MaxConns = int32(s.Pools.limits(compartmentOf(service)).Size) + housekeeping
	}
	return cfg
}

// compartmentOf is the feature in whose pool the service's calls run.
func compartmentOf(service string) string {
	i := slices.IndexFunc(allFeatures(), func(feature string) bool { return slices.Contains(services(feature), service) })
	return allFeatures()[i]
}

// place is where a service's tables are.
type place struct {
	server, database, schemas string
}

func placeOf(databaseURL string) (place, error) {
	cfg, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return place{}, fmt.Errorf("not a connection string: %w", err) // never seen: it has been validated
	}
	schemas := cfg.RuntimeParams["search_path"]
	if schemas == "" {
		schemas = "public"
	}
	return place{fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), cfg.Database, schemas}, nil
}

// apart says of services that would write into the same tables: every one has an outbox, and a history of migrations.
func (s Settings) apart(services []string) error {
	owners := map[place]string{}
	for _, service := range services {
		at, err := placeOf(s.database(service).URL)
		if err != nil {
			return err
		}
		if other, taken := owners[at]; taken {
			return fmt.Errorf("%s_DATABASE_URL: is %s's as well; in one database each needs a schema of its own, as by ?search_path=%s",
				strings.ToUpper(service), other, service)
		}
		owners[at] = service
	}
	return nil
}

// oneDatabase says whether checkout's tables and inventory's are in one database, each in a schema of its own. Then an order
// is placed and its stock reserved in one transaction.
func (s Settings) oneDatabase() bool {
	checkout, errC := placeOf(s.Databases.Checkout.URL)
	inventory, errI := placeOf(s.Databases.Inventory.URL)
	return errC == nil && errI == nil && checkout.server == inventory.server && checkout.database == inventory.database
}

// withStock lets checkout's connections find inventory's tables, behind its own.
func (s Settings) withStock(cfg postgres.Config) (postgres.Config, error) {
	checkout, err := placeOf(cfg.URL)
	if err != nil {
		return cfg, err
	}
	inventory, err := placeOf(s.Databases.Inventory.URL)
	if err != nil {
		return cfg, err
	}
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return cfg, fmt.Errorf("CHECKOUT_DATABASE_URL: must be a postgres:// URL where inventory is in the same database")
	}
	parameters := u.Query()
	parameters.Set("search_path", checkout.schemas+","+inventory.schemas)
	u.RawQuery = parameters.Encode()
	cfg.URL = u.String()
	if cfg.MigrateURL == "" { // the migrations are checkout's alone
		cfg.MigrateURL = s.Databases.Checkout.URL
	}
	return cfg, nil
}
