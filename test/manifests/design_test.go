package manifests

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"example.com/watertight/lab/shop"
	"example.com/watertight/test/manifests/chart"
)

// Each design has on a cluster the processes, databases and settings that it has in `lab up`.
func TestDesigns_AreThoseOfLab(t *testing.T) {
	for _, design := range shop.Designs() {
		options := shop.Options{Design: design}
		services := options.Present(root)
		access := map[string]shop.Access{}
		databases, err := options.Databases(services)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range services {
			access[s.User()] = shop.Access{NATS: "nats://" + s.User() + "@h"}
		}
		for _, d := range databases {
			for _, service := range d.Services {
				a := access[service]
				a.Database = d.Place("postgres://"+d.Name+"@h/"+d.Name+"?sslmode=disable", service)
				a.MigrateDatabase = d.Place("postgres://"+d.Name+"_owner@h/"+d.Name+"?sslmode=disable", service)
				access[service] = a
			}
		}
		want := map[string]map[string]string{}
		for _, p := range options.Plan(services, "", access, nil) {
			want[p.Name] = essentials(p.Env)
		}
		r := render(t, chart.Values{"design": design})
		secrets := typed[corev1.Secret](t, r, "Secret")
		got := map[string]map[string]string{}
		for name, d := range deployments(t, r) {
			var env []string
			for variable, value := range environment(t, r, d.Spec.Template.Spec.Containers[0]) {
				if ref, isSecret := strings.CutPrefix(value, "secret "); isSecret {
					secret, key, _ := strings.Cut(ref, "/")
					value = secrets[secret].StringData[key]
				}
				env = append(env, variable+"="+value)
			}
			got[name] = essentials(env)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-lab +chart):\n%s", design, diff)
		}
	}
}

// essentials leaves out where things listen and are reached, and what the chart and lab set each for reasons of its own.
func essentials(env []string) map[string]string {
	out := map[string]string{}
	for _, line := range env {
		name, value, _ := strings.Cut(line, "=")
		own := slices.Contains([]string{"DRAIN_DELAY", "DRAIN_TIMEOUT", "FAULTS_ENABLED", "INSTANCE_ID", "OTEL_RESOURCE_ATTRIBUTES", "RELAY_LEASE",
			"LOG_LEVEL", "LOG_FORMAT", "GOMEMLIMIT", "NODE_NAME", "STREAM_MAX_BYTES"}, name)
		if own || strings.HasSuffix(name, "_ADDR") {
			continue
		}
		if strings.HasSuffix(name, "_URL") { // the user, the database and the schema
			if parsed, err := url.Parse(value); err == nil {
				value = parsed.User.Username() + parsed.Path + "?" + parsed.RawQuery
			}
		}
		out[name] = value
	}
	return out
}

// The addresses that programs have by default are those of the Services.
func TestServices_AreWhereProgramsLook(t *testing.T) {
	for design, want := range map[string][]string{
		"split":       {"checkout", "gateway", "inventory", "nats", "payment", "postgres", "recs", "search"},
		"roles":       {"checkout", "gateway", "nats", "postgres", "recs", "search"},
		"shared-pool": {"gateway", "monolith", "nats", "postgres"},
	} {
		r := render(t, chart.Values{"design": design})
		services := typed[corev1.Service](t, r, "Service")
		var names []string
		for name, s := range services {
			names = append(names, name)
			if headless := s.Spec.ClusterIP == "None"; headless == (name == "gateway") {
				t.Errorf("%s: %s is headless: %v", design, name, headless)
			}
			if s.Spec.PublishNotReadyAddresses != (name == "recs") {
				t.Errorf("%s: %s publishes addresses that are not ready: %v", design, name, s.Spec.PublishNotReadyAddresses)
			}
			selectsPods(t, design, r, s)
		}
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: services (-want +got):\n%s", design, diff)
		}
	}
}

// selectsPods fails unless the Service has pods of one workload, with the ports that it names.
func selectsPods(t *testing.T, design string, r release, s *corev1.Service) {
	t.Helper()
	selected := 0
	for _, p := range pods(t, r) {
		matches := true
		for key, value := range s.Spec.Selector {
			matches = matches && p.Labels[key] == value
		}
		if !matches {
			continue
		}
		selected++
		for _, port := range s.Spec.Ports {
			if !slices.ContainsFunc(p.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool { return c.Name == port.TargetPort.StrVal }) {
				t.Errorf("%s: Service %s: %s has no port %s", design, s.Name, p.owner, port.TargetPort.StrVal)
			}
		}
	}
	if selected != 1 {
		t.Errorf("%s: Service %s selects %d workloads", design, s.Name, selected)
	}
}

func TestMTLS_EachProcessHasACertificateOfItsName(t *testing.T) {
	for _, name := range []string{"mtls", "mtls, own secrets", "mtls, roles", "prod"} {
		r := render(t, variants(t)[name])
		certificates := map[string]chart.Object{}
		for _, o := range r.Objects {
			if o.GetKind() == "Certificate" {
				secret, _ := o.Object["spec"].(map[string]any)["secretName"].(string)
				certificates[secret] = o
			}
		}
		if made := len(certificates) > 0; made != (name != "mtls, own secrets") {
			t.Errorf("%s: %d certificates", name, len(certificates))
		}
		for _, p := range pods(t, r) {
			process := p.Labels["app.kubernetes.io/name"]
			switch {
			case slices.Contains([]string{"postgres", "nats", "smoke"}, process):
				continue
			case process == "import":
				process = "lab"
			}
			env := environment(t, r, p.Spec.Containers[0])
			if env["TLS_CERT_FILE"] != "/etc/watertight/tls/tls.crt" || env["TLS_KEY_FILE"] != "/etc/watertight/tls/tls.key" || env["TLS_CA_FILE"] != "/etc/watertight/tls/ca.crt" {
				t.Errorf("%s: %s: %v", name, p.owner, env)
			}
			volume := p.Spec.Volumes[0]
			if volume.Secret == nil || volume.Secret.SecretName != process+"-tls" || p.Spec.Containers[0].VolumeMounts[0].MountPath != "/etc/watertight/tls" {
				t.Errorf("%s: %s: volumes %v", name, p.owner, p.Spec.Volumes)
			}
			if certificate, made := certificates[process+"-tls"]; made && !strings.Contains(certificate.Source, "- "+process+"\n") {
				t.Errorf("%s: the certificate of %s does not name it:\n%s", name, process, certificate.Source)
			} else if !made && len(certificates) > 0 {
				t.Errorf("%s: no certificate for %s", name, p.owner)
			}
		}
	}
}
