package main

import (
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"example.com/watertight/platform/mtls/authority"
)

type certsCommand struct {
	Namespace string        `default:"watertight" help:"Namespace of the shop."`
	Lifetime  time.Duration `default:"2160h" help:"How long the certificates are valid."`
}

// Help says what to do with the output.
func (*certsCommand) Help() string {
	return `Prints one Secret for each process that takes part in mutual TLS, all from a new authority whose key is thrown away.
For a laptop; elsewhere cert-manager issues and renews. Running it again replaces them all: processes that run take up the
new files by themselves, but between the first and the last of them calls may fail.

Example:
  lab certs | kubectl apply -f -
  helm upgrade watertight helm/watertight --reuse-values --set mtls.enabled=true`
}

// Run writes the Secrets as YAML documents.
func (c *certsCommand) Run(p process) error {
	ca, err := authority.New(c.Lifetime)
	if err != nil {
		return fmt.Errorf("--lifetime: %w", err)
	}
	for _, name := range []string{"gateway", "checkout", "search", "recs", "inventory", "payment", "monolith", "lab"} {
		if err := c.write(p.out, ca, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *certsCommand) write(out io.Writer, ca *authority.Authority, name string) error {
	domain := name + "." + c.Namespace
	pair, err := ca.Issue(name, domain, domain+".svc", domain+".svc.cluster.local")
	if err != nil {
		return err
	}
	secret := corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name + "-tls", Namespace: c.Namespace, Labels: map[string]string{
			"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "watertight", "app.kubernetes.io/managed-by": "lab",
		}},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": ca.Certificate()},
	}
	text, err := yaml.Marshal(secret)
	if err != nil {
		return fmt.Errorf("secret %s: %w", secret.Name, err)
	}
	_, err = fmt.Fprintf(out, "---\n%s", text)
	return err
}
