package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestCerts_PrintsASecretForEachProcessFromOneAuthority(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"certs", "--namespace", "shop"}, process{out: &out, errOut: io.Discard}); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(strings.TrimPrefix(out.String(), "---\n"), "---\n")
	if len(documents) != 8 {
		t.Fatalf("got %d documents, want 8", len(documents))
	}
	var authority []byte
	for _, text := range documents {
		var secret corev1.Secret
		if err := yaml.UnmarshalStrict([]byte(text), &secret); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(secret.Name, "-tls")
		if authority == nil {
			authority = secret.Data["ca.crt"]
		}
		if !bytes.Equal(authority, secret.Data["ca.crt"]) || secret.Namespace != "shop" || secret.Type != corev1.SecretTypeTLS {
			t.Errorf("%s: another authority, namespace %q or type %q", secret.Name, secret.Namespace, secret.Type)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(secret.Data["ca.crt"])
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		if err != nil {
			t.Fatalf("%s: %v", secret.Name, err)
		}
		for _, host := range []string{name, name + ".shop.svc.cluster.local"} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
				t.Errorf("%s: %v", secret.Name, err)
			}
		}
	}
}

func TestCerts_RefusesALifetimeThatIsOver(t *testing.T) {
	err := run(t.Context(), []string{"certs", "--lifetime=-1h"}, process{out: io.Discard, errOut: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "--lifetime") {
		t.Errorf("got %v, want an error that names --lifetime", err)
	}
}
