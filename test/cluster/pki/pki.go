// Package pki makes the keys and certificates of a one-node Kubernetes. They last ten years and are never renewed: the
// cluster is made anew sooner than that.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const lifetime = 10 * 365 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	// CertPEM is its own certificate, for those who trust it.
	CertPEM []byte
	dir     string
}

// NewAuthority makes an authority, and writes NAME.crt and NAME.key to dir.
func NewAuthority(dir, name string) (*Authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "watertight " + name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	a := &Authority{dir: dir}
	pair, err := a.issue(name, template)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(pair.der); err != nil {
		return nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	a.key, a.CertPEM = pair.key, pair.CertPEM
	return a, nil
}

// Pair is a certificate with its key.
type Pair struct {
	CertPEM, KeyPEM []byte
	der             []byte
	key             crypto.Signer
}

// Server issues a certificate for a server that is reached by those names and addresses, and writes it as NAME.crt and
// NAME.key.
func (a *Authority) Server(name, commonName string, dnsNames []string, addresses []net.IP) (Pair, error) {
	return a.issue(name, &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, DNSNames: dnsNames, IPAddresses: addresses,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// Client issues a certificate for a user of Kubernetes and their groups, and writes it as NAME.crt and NAME.key.
func (a *Authority) Client(name, user string, groups ...string) (Pair, error) {
	return a.issue(name, &x509.Certificate{
		Subject:  pkix.Name{CommonName: user, Organization: groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// issue completes the template and signs it; an authority without a certificate signs its own.
func (a *Authority) issue(name string, template *x509.Certificate) (Pair, error) {
	key, keyPEM, err := NewKey()
	if err != nil {
		return Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, fmt.Errorf("pki: %s: %w", name, err)
	}
	now := time.Now()
	// The hour allows for a clock that is set back.
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, now.Add(-time.Hour), now.Add(lifetime)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("pki: %s: %w", name, err)
	}
	pair := Pair{CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), KeyPEM: keyPEM, der: der, key: key}
	if err := os.WriteFile(filepath.Join(a.dir, name+".crt"), pair.CertPEM, 0o644); err != nil {
		return Pair{}, fmt.Errorf("pki: %w", err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, name+".key"), pair.KeyPEM, 0o600); err != nil {
		return Pair{}, fmt.Errorf("pki: %w", err)
	}
	return pair, nil
}

// NewKey makes a private key, also as PEM.
func NewKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// PublicPEM is the public half of a key.
func PublicPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("pki: public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
