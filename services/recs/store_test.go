package recs

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/services/recs/similarity"
)

func TestStore_AModelThatKnowsLessNeverReplacesOneThatKnowsMore(t *testing.T) {
	ctx := t.Context()
	cfg := postgres.Config{URL: pgtest.New(t), MaxConns: 2, ConnectTimeout: time.Second, MigrateTimeout: time.Minute}
	files, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(ctx, cfg, files, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	pool, err := postgres.Open(ctx, cfg, postgres.Deps{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := store{pool}
	model := func(products ...string) *similarity.Model {
		var b similarity.Baskets
		b.Add(products)
		m, err := similarity.Compute(ctx, &b, similarity.Settings{MinSupport: 1, MaxBasket: 9})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}

	version, err := s.save(ctx, model("A", "B", "C"), 5)
	if err != nil || version != 1 {
		t.Fatalf("save: got version %d and %v, want 1", version, err)
	}
	if _, err := s.save(ctx, model("X", "Y"), 4); !errors.Is(err, errNewerModel) {
		t.Errorf("save of a model that knows less: got %v, want %v", err, errNewerModel)
	}
	stored, version, err := s.load(ctx)
	if err != nil || version != 1 || stored.Recommendable() != 3 {
		t.Errorf("stored: got version %d with %d products and %v, want version 1 with 3", version, stored.Recommendable(), err)
	}
	// The same baskets learned again, with other settings perhaps, are a new model.
	if version, err = s.save(ctx, model("A", "B"), 5); err != nil || version != 2 {
		t.Errorf("save again: got version %d and %v, want 2", version, err)
	}
}
