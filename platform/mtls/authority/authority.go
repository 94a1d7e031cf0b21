// Package authority issues certificates for mutual TLS between the shop's processes, where no cert-manager does: on a laptop, and in
// tests. Its key lives in memory only: who needs a certificate later makes a new authority and replaces all of them.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// backdate is how long before now certificates begin: clocks differ.
const backdate = 5 * time.Minute

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	lifetime    time.Duration
}

// Pair is a certificate and its private key, PEM both.
type Pair struct{ Cert, Key []byte }

// New makes an authority that is valid for lifetime, as are the certificates it issues.
func New(lifetime time.Duration) (*Authority, error) {
	if lifetime <= 0 {
		return nil, fmt.Errorf("lifetime must be more than 0s, got %v", lifetime)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the authority: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "watertight"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: time.Now().Add(-backdate), NotAfter: time.Now().Add(lifetime),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	return &Authority{certificate, key, lifetime}, nil
}

// Certificate is the authority's own, PEM, for those who are to trust it.
func (a *Authority) Certificate() []byte { return encode("CERTIFICATE", a.certificate.Raw) }

// Issue makes a key and a certificate for a process that serves and calls others under the names, the plain name of its service
// first.
func (a *Authority) Issue(names ...string) (Pair, error) {
	if len(names) == 0 {
		return Pair{}, errors.New("a certificate must have a name")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("key for %s: %w", names[0], err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-backdate), NotAfter: time.Now().Add(a.lifetime),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate for %s: %w", names[0], err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("key for %s: %w", names[0], err)
	}
	return Pair{encode("CERTIFICATE", der), encode("PRIVATE KEY", private)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
