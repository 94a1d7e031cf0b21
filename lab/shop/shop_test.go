package shop

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlan_HasTheShopsNamesAndNumbers(t *testing.T) {
	processes := Options{}.Plan(services(), "/bin", nil, nil)
	got := map[string]map[string]string{}
	for _, p := range processes {
		got[p.Name] = p.Addresses
	}
	want := map[string]map[string]string{
		"gateway":   {"http": "127.0.0.1:8080", "admin": "127.0.0.1:9080"},
		"checkout":  {"grpc": "127.0.0.1:50051", "admin": "127.0.0.1:9081"},
		"search":    {"grpc": "127.0.0.1:50052", "admin": "127.0.0.1:9082"},
		"recs":      {"grpc": "127.0.0.1:50053", "admin": "127.0.0.1:9083"},
		"inventory": {"grpc": "127.0.0.1:50054", "admin": "127.0.0.1:9084"},
		"payment":   {"grpc": "127.0.0.1:50055", "admin": "127.0.0.1:9085"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestPlan_GivesAProcessItsEnvironmentAndNoOthers(t *testing.T) {
	access := map[string]Access{
		"gateway":  {NATS: "nats://gateway"},
		"checkout": {NATS: "nats://checkout", Database: "postgres://checkout", MigrateDatabase: "postgres://checkout_owner"},
	}
	options := Options{PortOffset: 1000, Replicas: map[string]int{"recs": 2}, Env: map[string]map[string]string{"checkout": {"ORDER_EXPIRY": "30s", "DRAIN_DELAY": "1s"}}}
	environ := []string{"PATH=/usr/bin", "DATABASE_URL=postgres://other", "HTTP_ADDR=:80", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317", "PGPASSWORD=x"}
	got := map[string][]string{}
	for _, p := range options.Plan(services(), "/bin", access, environ) {
		got[p.Name] = p.Env
	}
	want := map[string][]string{
		"gateway": {
			"PATH=/usr/bin", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317",
			"ADMIN_ADDR=127.0.0.1:10080", "CHECKOUT_ADDR=dns:///127.0.0.1:51051", "DRAIN_DELAY=0s", "FAULTS_ENABLED=true",
			"HTTP_ADDR=127.0.0.1:9080", "INSTANCE_ID=gateway", "NATS_URL=nats://gateway", "OTEL_RESOURCE_ATTRIBUTES=service.instance.id=gateway", "OTEL_SERVICE_NAME=gateway",
			"RECS_ADDR=static:///127.0.0.1:51053,127.0.0.1:51063", "SEARCH_ADDR=dns:///127.0.0.1:51052",
		},
		"checkout": {
			"PATH=/usr/bin", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317",
			"ADMIN_ADDR=127.0.0.1:10081", "DATABASE_URL=postgres://checkout", "DRAIN_DELAY=1s", "FAULTS_ENABLED=true", "GRPC_ADDR=127.0.0.1:51051", "INSTANCE_ID=checkout",
			"MIGRATE_DATABASE_URL=postgres://checkout_owner", "NATS_URL=nats://checkout", "ORDER_EXPIRY=30s",
			"OTEL_RESOURCE_ATTRIBUTES=service.instance.id=checkout", "OTEL_SERVICE_NAME=checkout", "RECS_ADDR=static:///127.0.0.1:51053,127.0.0.1:51063", "RELAY_LEASE=10s",
		},
	}
	for name, env := range want {
		if diff := cmp.Diff(env, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if !slices.Contains(got["recs-2"], "GRPC_ADDR=127.0.0.1:51063") || !slices.Contains(got["recs-2"], "ADMIN_ADDR=127.0.0.1:10093") {
		t.Errorf("recs-2: got %v", got["recs-2"])
	}
}

func TestPlan_LeadsServicesThroughAProxy(t *testing.T) {
	access := map[string]Access{"checkout": {NATS: "nats://checkout:p@127.0.0.1:4222", Database: "postgres://checkout:p@127.0.0.1:9/checkout?sslmode=disable",
		MigrateDatabase: "postgres://checkout_owner:p@127.0.0.1:9/checkout?sslmode=disable"}}
	options := Options{Via: map[string]string{Postgres: "127.0.0.1:1111", NATS: "127.0.0.1:2222"}}
	processes := options.Plan(services(), "/bin", access, nil)
	for _, want := range []string{"NATS_URL=nats://checkout:p@127.0.0.1:2222", "DATABASE_URL=postgres://checkout:p@127.0.0.1:1111/checkout?sslmode=disable",
		"MIGRATE_DATABASE_URL=postgres://checkout_owner:p@127.0.0.1:1111/checkout?sslmode=disable"} {
		if !slices.Contains(processes[0].Env, want) {
			t.Errorf("%s: got %v, want %s", processes[0].Name, processes[0].Env, want)
		}
	}
}

func TestPlan_NeverUsesAPortTwice(t *testing.T) {
	options := Options{Replicas: map[string]int{}}
	for _, name := range (Options{}).Names() {
		options.Replicas[name] = maxReplicas
	}
	owners := map[string]string{address(options.NATSPort()): "nats"}
	for _, p := range options.Plan(services(), "", nil, nil) {
		for protocol, address := range p.Addresses {
			if other, taken := owners[address]; taken {
				t.Errorf("%s is %s's and %s %s's", address, other, p.Name, protocol)
			}
			owners[address] = p.Name + " " + protocol
		}
	}
}

func TestPlan_LeavesOutAServiceWithoutReplicas(t *testing.T) {
	options := Options{Replicas: map[string]int{"recs": 0}}
	for _, p := range options.Plan(services(), "", nil, nil) {
		if p.Service == "recs" {
			t.Errorf("%s runs", p.Name)
		}
	}
	if got, want := options.Target("recs"), "dns:///127.0.0.1:50053"; got != want {
		t.Errorf("target: got %s, want %s", got, want)
	}
}

func TestConnections_AreThePoolsOfEveryReplicaAndOneMore(t *testing.T) {
	checkout := services()[0]
	for _, tc := range []struct {
		options        Options
		service, owner int
	}{
		{Options{}, 2 * (16 + 2 + 4), 6},
		{Options{Replicas: map[string]int{"checkout": 3}}, 4 * (16 + 2 + 4), 12},
		{Options{Env: map[string]map[string]string{"checkout": {"DB_MAX_CONNS": "30"}}}, 2 * (30 + 2 + 4), 6},
	} {
		service, owner, err := tc.options.Connections(checkout)
		if err != nil || service != tc.service || owner != tc.owner {
			t.Errorf("%+v: got %d and %d (%v), want %d and %d", tc.options, service, owner, err, tc.service, tc.owner)
		}
	}
	wrong := Options{Env: map[string]map[string]string{"checkout": {"DB_MAX_CONNS": "many"}}}
	if _, _, err := wrong.Connections(checkout); err == nil || !strings.Contains(err.Error(), "checkout.DB_MAX_CONNS=many") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func TestOptions_RefusesWhatCannotBe(t *testing.T) {
	for want, options := range map[string]Options{
		`no service is called "rec"`:  {Replicas: map[string]int{"rec": 2}},
		`no service is called "cart"`: {Env: map[string]map[string]string{"cart": {"X": "1"}}},
		"--replicas recs=-1":          {Replicas: map[string]int{"recs": -1}},
		"--replicas recs=21":          {Replicas: map[string]int{"recs": 21}},
		"--port-offset -1":            {PortOffset: -1},
		"--port-offset 15481":         {PortOffset: 15481},
		"--port-offset 15480":         {PortOffset: 15480, Replicas: map[string]int{"payment": 2}},
	} {
		if err := options.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", options, err, want)
		}
	}
	if err := (Options{PortOffset: 15480}).Validate(); err != nil {
		t.Errorf("the highest offset: %v", err)
	}
}

func TestPresent_ListsServicesThatHaveAProgram(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"gateway/cmd/gateway", "services/recs/cmd/recs", "services/inventory"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, s := range (Options{}).Present(root) {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff([]string{"recs", "gateway"}, got); diff != "" {
		t.Errorf("present (-want +got):\n%s", diff)
	}
}

func TestHoldPorts_NamesWhatIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := listener.Addr().String()
	// An offset at which nothing of this machine is likely to listen.
	options := Options{PortOffset: 13_000}
	processes := []Process{{Name: "recs", Addresses: map[string]string{"grpc": taken}}}
	_, err = options.HoldPorts(processes)
	if err == nil || !strings.Contains(err.Error(), "recs grpc") || !strings.Contains(err.Error(), taken) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that names recs grpc and %s", err, taken)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	held, err := options.HoldPorts(processes)
	if err != nil {
		t.Fatalf("with the port free: %v", err)
	}
	defer held.Release()
	for range 2 { // also the process that is started again
		mine, err := net.Listen("tcp", taken)
		if err != nil {
			t.Fatalf("the process it is held for: %v", err)
		}
		if err := mine.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPlan_SendsTracesToTheJaegerBesideTheShop(t *testing.T) {
	options := Options{PortOffset: 1000, Traces: true}
	for _, p := range options.Plan(services(), "/bin", nil, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://elsewhere:4317"}) {
		last := "" // of two values a process gets the later one
		for _, line := range p.Env {
			if value, ok := strings.CutPrefix(line, "OTEL_EXPORTER_OTLP_ENDPOINT="); ok {
				last = value
			}
		}
		if want := "http://127.0.0.1:5317"; last != want {
			t.Errorf("%s sends its traces to %q, want %q", p.Name, last, want)
		}
	}
	if got, want := options.JaegerAddress(), "127.0.0.1:17686"; got != want {
		t.Errorf("JaegerAddress() = %s, want %s", got, want)
	}
}
