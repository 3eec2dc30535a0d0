package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Variables are the environment variables that flags read: for each flag those that set it.
type Variables [][]string

// VariablesOf reads them from the tags of a command's struct.
func VariablesOf(command reflect.Type) (names Variables) {
	for i := range command.NumField() {
		field := command.Field(i)
		if env := field.Tag.Get("env"); env != "" {
			names = append(names, strings.Split(env, ","))
		}
		if field.Type.Kind() == reflect.Struct {
			names = append(names, VariablesOf(field.Type)...)
		}
	}
	return names
}

// isSet tells whether a variable is set, or another that sets the same flag.
func (v Variables) isSet(name string) bool {
	names := []string{name}
	for _, group := range v {
		if slices.Contains(group, name) {
			names = group
			break
		}
	}
	return slices.ContainsFunc(names, func(one string) bool {
		_, set := os.LookupEnv(one)
		return set
	})
}

// known lists the variables that flags read.
func (v Variables) known() []string {
	known := append(slices.Concat(v...), envFileVariable)
	slices.Sort(known)
	return slices.Compact(known) // many commands share a flag
}

// unknown lists the CARILLON_ variables of the environment that no flag reads.
func (v Variables) unknown() (names []string) {
	known := v.known()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "CARILLON_") && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	return names
}

// WarnUnknown logs each CARILLON_ variable that no flag reads. A misspelt variable would otherwise silently leave a default in
// force.
func (v Variables) WarnUnknown(ctx context.Context, log *slog.Logger) {
	for _, name := range v.unknown() {
		log.WarnContext(ctx, "unknown environment variable", "variable", name, "known", strings.Join(nearest(name, v.known()), ", "))
	}
}

// nearest returns the known names that share the longest prefix with name.
func nearest(name string, known []string) []string {
	var best []string
	length := len("CARILLON_")
	for _, k := range known {
		n := 0
		for n < min(len(name), len(k)) && name[n] == k[n] {
			n++
		}
		switch {
		case n > length:
			best, length = []string{k}, n
		case n == length && n > len("CARILLON_"):
			best = append(best, k)
		}
	}
	if best == nil {
		return known
	}
	return best
}

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
