//go:build unix

package statedir

import (
	"crypto/rand"
	"os"
)

// Secrets are the passwords of one state folder, by what they open. They are made when first asked for.
type Secrets struct {
	dir    Dir
	values map[string]string
}

// Secrets reads the passwords that exist.
func (d Dir) Secrets() (*Secrets, error) {
	s := &Secrets{dir: d, values: map[string]string{}}
	return s, readJSON(d.secretsFile(), &s.values)
}

// Get returns the password for name: letters and digits only, so that it needs no quoting in a URL, in SQL or in a
// configuration file. A new one is on disk before it is returned.
func (s *Secrets) Get(name string) (string, error) {
	if value, ok := s.values[name]; ok {
		return value, nil
	}
	s.values[name] = rand.Text()
	return s.values[name], writeJSON(s.dir.secretsFile(), s.values)
}

// SecretsExist reports whether the folder has passwords already.
func (d Dir) SecretsExist() bool {
	_, err := os.Stat(d.secretsFile())
	return err == nil
}
