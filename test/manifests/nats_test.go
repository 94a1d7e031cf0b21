package manifests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"

	"example.com/watertight/lab/natsserver"
	"example.com/watertight/test/manifests/chart"
)

type permissions struct{ Password, Publish, Subscribe any }

// users are those of a configuration as the server itself reads it.
func users(t *testing.T, content string) (map[string]permissions, *server.Options) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]permissions{}
	for _, u := range options.Users {
		p := permissions{Password: u.Password}
		if u.Permissions != nil {
			p.Publish, p.Subscribe = u.Permissions.Publish, u.Permissions.Subscribe
		}
		out[u.Username] = p
	}
	return out, options
}

// The chart's broker lets each service do what lab's lets it do, with the passwords of the Secret that the pod reads.
func TestNATS_HasTheUsersAndPermissionsOfLab(t *testing.T) {
	passwords := chart.Values{}
	for _, user := range append(natsserver.Users(), natsserver.Admin) {
		passwords[user] = "secret-of-" + user
	}
	r := render(t, chart.Values{"passwords": chart.Values{"broker": passwords}})
	lab := natsserver.Config{Host: "0.0.0.0", Port: 4222, StoreDir: "/data", Passwords: map[string]string{}}
	for user, password := range passwords {
		lab.Passwords[user] = password.(string)
	}
	labFile, err := lab.File()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := users(t, labFile)
	for name, value := range typed[corev1.Secret](t, r, "Secret")["nats"].StringData {
		t.Setenv(name, value)
	}
	got, options := users(t, typed[corev1.ConfigMap](t, r, "ConfigMap")["nats"].Data["nats.conf"])
	if diff := cmp.Diff(want, got); diff != "" || len(got) != len(passwords) {
		t.Errorf("users (-lab +chart):\n%s", diff)
	}
	if !options.SyncAlways || !options.JetStream || options.StoreDir != "/data" || options.HTTPPort != 8222 || options.Host != "0.0.0.0" {
		t.Errorf("sync always %v, JetStream %v in %s, monitoring on %d, host %s", options.SyncAlways, options.JetStream, options.StoreDir, options.HTTPPort, options.Host)
	}
}
