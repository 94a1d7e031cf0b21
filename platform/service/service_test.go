package service_test

import (
	"testing"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/service"
)

func TestBoundByDatabase_NoMoreWorkersThanConnectionsForThem(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		want    int
	}{
		{"defaults", nil, 14},
		{"few workers", []string{"POOL_SIZE=4"}, 4},
		{"many connections", []string{"POOL_SIZE=64", "DB_MAX_CONNS=100"}, 64},
		{"hardly any connections", []string{"DB_MAX_CONNS=1"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := config.Load[service.Config](append(c.environ, "DATABASE_URL=postgres://a@localhost/a"))
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.BoundByDatabase().Server.Pool.Size; got != c.want {
				t.Errorf("workers = %d, want %d", got, c.want)
			}
		})
	}
}
