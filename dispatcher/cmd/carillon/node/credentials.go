package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// credential is a file that a machine may have, and the variable that then names it.
type credential struct{ file, variable, instead string }

// Credentials are those whose variables were set.
type Credentials []credential

// credentials are the passwords and keys of a machine. A variable that gives the same in another way wins.
func credentials() []credential {
	return []credential{
		{"database-password", "CARILLON_DATABASE_PASSWORD_FILE", "CARILLON_DATABASE_PASSWORD"},
		{"secret-keys", "CARILLON_SECRET_KEYS_FILE", "CARILLON_SECRET_KEYS"},
		{"tls-cert", "CARILLON_TLS_CERT", ""},
		{"tls-key", "CARILLON_TLS_KEY", ""},
		{"vault-token", "CARILLON_VAULT_TOKEN_FILE", "CARILLON_VAULT_TOKEN"},
	}
}

// credentialsDirectory names the directory into which systemd puts the credentials of a unit.
const credentialsDirectory = "CREDENTIALS_DIRECTORY"

// LoadCredentials sets the variables of the files that this process can read, and returns them. A node under
// systemd has copies, which its unit loads as carillon_NAME. The commands of root read the directory
// "credentials" next to the settings.
func (v Variables) LoadCredentials() (found Credentials, err error) {
	for _, c := range credentials() {
		if v.isSet(c.variable) || c.instead != "" && v.isSet(c.instead) {
			continue
		}
		var paths []string
		if dir := os.Getenv(credentialsDirectory); dir != "" {
			paths = append(paths, filepath.Join(dir, "carillon_"+c.file))
		}
		if settings, _ := envFilePath(); settings != "" {
			paths = append(paths, filepath.Join(filepath.Dir(settings), "credentials", c.file))
		}
		readable := slices.IndexFunc(paths, canRead)
		if readable < 0 {
			continue
		}
		c.file = paths[readable]
		if err := os.Setenv(c.variable, c.file); err != nil {
			return nil, fmt.Errorf("%s: %w", c.variable, err)
		}
		found = append(found, c)
	}
	return found, nil
}

func canRead(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// Explain says of an error where the flags that it names come from, since nobody has set them.
func (found Credentials) Explain(err error) error {
	for _, c := range found {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(c.variable, "CARILLON_")), "_", "-")
		if strings.Contains(err.Error(), flag) {
			err = fmt.Errorf("%w\n%s is set, because %s exists", err, flag, c.file)
		}
	}
	return err
}
