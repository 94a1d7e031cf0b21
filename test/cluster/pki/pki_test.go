package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"example.com/watertight/test/cluster/pki"
)

// A server that asks for certificates, and a client, both of one authority, over TLS as the API server and its users do.
func TestAuthority_ItsServersAndClientsKnowEachOther(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.NewAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Server("server", "kube-apiserver", []string{"kubernetes"}, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Client("client", "somebody", "system:masters"); err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca.CertPEM)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{load(t, dir, "server")}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	subject := make(chan string, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			subject <- err.Error()
			return
		}
		defer func() { _ = connection.Close() }()
		server := connection.(*tls.Conn)
		if err := server.Handshake(); err != nil {
			subject <- err.Error()
			return
		}
		subject <- server.ConnectionState().PeerCertificates[0].Subject.String()
	}()
	client, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{
		Certificates: []tls.Certificate{load(t, dir, "client")}, RootCAs: trusted,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if got, want := <-subject, "CN=somebody,O=system:masters"; got != want {
		t.Errorf("the server sees %q, want %q", got, want)
	}
	if err := client.VerifyHostname("kubernetes"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]os.FileMode{"client.key": 0o600, "ca.key": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %v", name, info.Mode(), err, want)
		}
	}
}

func load(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
