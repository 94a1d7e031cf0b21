// Package mtls is who speaks to whom: mutual TLS between the shop's processes, with certificates that may be replaced while they
// run, and the peer's name as the server learns it from the certificate. It knows no service, and it issues no certificates.
package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/credentials/tls/certprovider/pemfile"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/security/advancedtls"
)

// Config names the files of a process's identity, PEM each. All three or none: without them connections are in plain text.
type Config struct {
	CertFile string        `env:"TLS_CERT_FILE" help:"certificate of this process; with TLS_KEY_FILE and TLS_CA_FILE it turns mutual TLS on"`
	KeyFile  string        `env:"TLS_KEY_FILE" help:"private key of TLS_CERT_FILE, in the same folder"`
	CAFile   string        `env:"TLS_CA_FILE" help:"certificates of the authorities whose peers are trusted"`
	Reload   time.Duration `env:"TLS_RELOAD" envDefault:"10s" help:"how often the files are looked at again; a new certificate needs no restart"`
}

// Validate checks that the files are set together.
func (c Config) Validate() error {
	var errs []error
	if c.enabled() {
		for _, file := range []struct{ variable, path string }{
			{"TLS_CERT_FILE", c.CertFile}, {"TLS_KEY_FILE", c.KeyFile}, {"TLS_CA_FILE", c.CAFile},
		} {
			if file.path == "" {
				errs = append(errs, fmt.Errorf("%s: must be set too when another of TLS_CERT_FILE, TLS_KEY_FILE and TLS_CA_FILE is", file.variable))
			}
		}
	}
	if c.Reload <= 0 {
		errs = append(errs, errors.New("TLS_RELOAD: must be more than 0s"))
	}
	return errors.Join(errs...)
}

func (c Config) enabled() bool { return c.CertFile != "" || c.KeyFile != "" || c.CAFile != "" }

// Identity is a process's certificate and the authorities it trusts, both read again while it runs. A nil Identity is plain text.
type Identity struct{ provider certprovider.Provider }

// Open reads the files; nil when none is set. Files that are later replaced by something unusable are left alone, and what
// was read before stays in use. Close it when done.
func Open(cfg Config) (*Identity, error) {
	if err := cfg.Validate(); err != nil || !cfg.enabled() {
		return nil, err
	}
	// The provider reads in the background and keeps its errors to itself; a process that cannot speak should not start.
	if _, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile); err != nil {
		return nil, fmt.Errorf("TLS_CERT_FILE and TLS_KEY_FILE: %w", err)
	}
	roots, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("TLS_CA_FILE: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(roots) {
		return nil, fmt.Errorf("TLS_CA_FILE: no certificate in %s", cfg.CAFile)
	}
	provider, err := pemfile.NewProvider(pemfile.Options{
		CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, RootFile: cfg.CAFile, RefreshDuration: cfg.Reload,
	})
	if err != nil {
		return nil, fmt.Errorf("TLS_CERT_FILE and TLS_KEY_FILE: %w", err)
	}
	return &Identity{provider}, nil
}

// Close stops looking at the files.
func (i *Identity) Close(context.Context) error {
	if i != nil {
		i.provider.Close()
	}
	return nil
}

// Server are the credentials of a server: only peers with a certificate of a trusted authority get in.
func (i *Identity) Server() (credentials.TransportCredentials, error) {
	if i == nil {
		return insecure.NewCredentials(), nil
	}
	return advancedtls.NewServerCreds(&advancedtls.Options{
		IdentityOptions: advancedtls.IdentityCertificateOptions{IdentityProvider: i.provider},
		RootOptions:     advancedtls.RootCertificateOptions{RootProvider: i.provider},
		// A client has no host name to check. Who it is, is for the server's handlers to judge: see Peer.
		RequireClientCert: true, VerificationType: advancedtls.CertVerification,
		MinTLSVersion: tls.VersionTLS13, MaxTLSVersion: tls.VersionTLS13,
	})
}

// Client are the credentials of a connection, whose server must have a certificate for the connection's authority.
func (i *Identity) Client() (credentials.TransportCredentials, error) {
	if i == nil {
		return insecure.NewCredentials(), nil
	}
	return advancedtls.NewClientCreds(&advancedtls.Options{
		IdentityOptions: advancedtls.IdentityCertificateOptions{IdentityProvider: i.provider},
		RootOptions:     advancedtls.RootCertificateOptions{RootProvider: i.provider},
		MinTLSVersion:   tls.VersionTLS13, MaxTLSVersion: tls.VersionTLS13,
	})
}

// Peer returns the names of the process at the other end of a call: the DNS names of its certificate, of which one is the plain
// name of its service. It is false when the connection proves nothing.
func Peer(ctx context.Context) (names []string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil, false
	}
	return info.State.PeerCertificates[0].DNSNames, true
}
