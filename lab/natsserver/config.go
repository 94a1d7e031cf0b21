package natsserver

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Config is what the server's configuration file is written from.
type Config struct {
	Host string
	Port int
	// StoreDir holds the streams; it is private to the server.
	StoreDir string
	// Passwords has one for Admin and for each of Users.
	Passwords map[string]string
}

// Address is where the server listens.
func (c Config) Address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }

// URL is where user reaches the server.
func (c Config) URL(user string) string {
	return fmt.Sprintf("nats://%s:%s@%s", user, c.Passwords[user], c.Address())
}

// File returns the configuration file, or an error that names the user who has no password.
func (c Config) File() (string, error) {
	for _, user := range append(Users(), Admin) {
		if c.Passwords[user] == "" {
			return "", fmt.Errorf("NATS user %s has no password", user)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by lab at each start; changes are lost.\nserver_name: watertight\nhost: %q\nport: %d\n", c.Host, c.Port)
	// An acknowledgement of a publish then means that the message is on the disk.
	fmt.Fprintf(&b, "jetstream {\n  store_dir: %q\n  sync_interval: always\n}\n", c.StoreDir)
	b.WriteString("authorization {\n  users: [\n")
	fmt.Fprintf(&b, "    { user: %q, password: %q }\n", Admin, c.Passwords[Admin])
	for _, g := range grants() {
		fmt.Fprintf(&b, "    { user: %q, password: %q, permissions: {\n", g.user, c.Passwords[g.user])
		fmt.Fprintf(&b, "      publish: { allow: [%s] }\n", quoted(g.publish()))
		fmt.Fprintf(&b, "      subscribe: { allow: [%s] }\n    } }\n", quoted(g.subscribe()))
	}
	b.WriteString("  ]\n}\n")
	return b.String(), nil
}

func quoted(subjects []string) string {
	out := make([]string, len(subjects))
	for i, s := range subjects {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}
