package shop

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// environmentOf returns the variables of the process, by name.
func environmentOf(t *testing.T, processes []Process, name string) map[string]string {
	t.Helper()
	i := slices.IndexFunc(processes, func(p Process) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no process %s in %+v", name, processes)
	}
	env := map[string]string{}
	for _, line := range processes[i].Env {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	return env
}

func TestDesigns_OfOneProcessServeWhereTheGatewayDoes(t *testing.T) {
	access := map[string]Access{Monolith: {NATS: "nats://monolith"}, "inventory": {Database: "postgres://m/monolith?search_path=inventory"}}
	for design, want := range map[string]map[string]string{
		SharedPool:     {"POOLS": "shared", "POOL_SIZE": "16", "RECS_TIMEOUT": "1s"},
		PoolPerFeature: {"POOLS": "per-feature", "POOL_SIZE": "16", "RECS_TIMEOUT": ""},
	} {
		o := Options{Design: design, Env: map[string]map[string]string{Monolith: {"POOL_QUEUE": "7"}}}
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", design, err)
		}
		processes := o.Plan(o.services(), "/bin", access, nil)
		if len(processes) != 1 || processes[0].Program != "/bin/monolith" {
			t.Fatalf("%s: %+v, want the one process of the monolith", design, processes)
		}
		addresses := map[string]string{"http": "127.0.0.1:8080", "admin": "127.0.0.1:9080", "grpc": "127.0.0.1:50051"}
		if diff := cmp.Diff(addresses, processes[0].Addresses); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", design, diff)
		}
		if diff := cmp.Diff([]string{"checkout", "inventory", "payment", "recs", "search"}, slices.Sorted(slices.Values(processes[0].Serves))); diff != "" {
			t.Errorf("%s: serves (-want +got):\n%s", design, diff)
		}
		got := environmentOf(t, processes, Monolith)
		maps.Copy(want, map[string]string{"POOL_QUEUE": "7", "NATS_URL": "nats://monolith", "INVENTORY_DATABASE_URL": "postgres://m/monolith?search_path=inventory"})
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", design, name, got[name], value)
			}
		}
	}
}

func TestDesigns_RolesAreTheSplitWithOneProgram(t *testing.T) {
	o := Options{Design: Roles, Replicas: map[string]int{"recs": 2}}
	processes := o.Plan(o.services(), "/bin", map[string]Access{Monolith: {NATS: "nats://monolith"}}, nil)
	features := map[string]string{}
	for _, p := range processes {
		env := environmentOf(t, processes, p.Name)
		features[p.Name] = env["FEATURES"]
		if p.Program != "/bin/monolith" || env["NATS_URL"] != "nats://monolith" {
			t.Errorf("%s: program %s, broker %s", p.Name, p.Program, env["NATS_URL"])
		}
	}
	want := map[string]string{"gateway": "none", "checkout": "checkout", "search": "search", "recs": "recs", "recs-2": "recs"}
	if diff := cmp.Diff(want, features); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
	front, checkout := environmentOf(t, processes, "gateway"), environmentOf(t, processes, "checkout")
	if front["HTTP_ADDR"] != "127.0.0.1:8080" || front["RECS_ADDR"] != "static:///127.0.0.1:50053,127.0.0.1:50063" || front["CHECKOUT_ADDR"] != "dns:///127.0.0.1:50051" {
		t.Errorf("the front: %v", front)
	}
	if _, own := checkout["CHECKOUT_ADDR"]; own || checkout["SEARCH_ADDR"] != "dns:///127.0.0.1:50052" || checkout["HTTP_ADDR"] != "127.0.0.1:0" {
		t.Errorf("checkout: %v", checkout)
	}
	if _, holds := checkout["PAYMENT_DATABASE_URL"]; !holds {
		t.Error("checkout's role has no database of payment")
	}
}

func TestDatabases_OneForOneProcessAndOneForEachServiceElse(t *testing.T) {
	all := []string{"checkout", "search", "recs", "inventory", "payment"}
	const perService = 2 * (16 + 2 + 2 + 4) // workers, housekeeping, relay, consumers; twice, for a process that has just died
	for design, want := range map[string][]Database{
		SharedPool: {{Monolith, all, true, 5 * perService, 5 * 6}},
		Roles: {{"checkout", []string{"checkout"}, false, perService, 6}, {"inventory", []string{"inventory"}, false, perService, 6},
			{"payment", []string{"payment"}, false, perService, 6}, {"search", []string{"search"}, false, perService, 6}, {"recs", []string{"recs"}, false, perService, 6}},
	} {
		o := Options{Design: design}
		got, err := o.Databases(o.services())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", design, diff)
		}
	}
	split := Options{}
	got, err := split.Databases(split.services())
	if err != nil || len(got) != 5 || got[0].Schemas {
		t.Errorf("split: %+v, %v; want five", got, err)
	}
	wrong := Options{Design: SharedPool, Env: map[string]map[string]string{Monolith: {"POOL_SIZE": "many"}}}
	if _, err := wrong.Databases(wrong.services()); err == nil || !strings.Contains(err.Error(), "monolith.POOL_SIZE=many") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func TestPlace_PutsAServiceIntoItsSchema(t *testing.T) {
	shared := Database{Name: Monolith, Schemas: true}
	for url, want := range map[string]string{
		"postgres://a@h/d": "postgres://a@h/d?search_path=recs", "postgres://a@h/d?sslmode=disable": "postgres://a@h/d?sslmode=disable&search_path=recs",
	} {
		if got := shared.Place(url, "recs"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := (Database{Name: "recs"}).Place(url, "recs"); got != url {
			t.Errorf("got %s, want it as it was", got)
		}
	}
}

func TestDesigns_RefuseWhatTheyDoNotHave(t *testing.T) {
	for want, o := range map[string]Options{
		"--design spilt": {Design: "spilt"}, `no service is called "recs"`: {Design: SharedPool, Replicas: map[string]int{"recs": 2}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
