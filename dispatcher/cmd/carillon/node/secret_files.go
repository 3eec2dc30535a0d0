package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// secretDirFlag is the directory of the files that jobs refer to.
type secretDirFlag struct {
	SecretDir string `env:"CARILLON_SECRET_DIR" default:"/etc/carillon/secrets" placeholder:"DIR" help:"Directory of the secret files that jobs refer to as file:PATH, by default those of app A as file:A/PATH. It must hold nothing of the node's own."`
}

// ownFile is a file of the node itself, and what names it.
type ownFile struct{ name, path string }

// mostSecretFiles bounds how many files are compared with the node's own.
const mostSecretFiles = 10_000

// platformTokens are names under which platforms put tokens of the node.
var platformTokens = []string{"kubernetes.io", "eks.amazonaws.com", "azure-identity-token"}

// check refuses a directory in which jobs could read what is the node's own.
func (f secretDirFlag) check(own []ownFile) error {
	dir := realPath(f.SecretDir)
	refuse := func(what string) error {
		return fmt.Errorf("--secret-dir (CARILLON_SECRET_DIR) %s holds %s, which jobs could use; give jobs a directory of their own, "+
			"such as /etc/carillon/secrets", input.Echo(f.SecretDir), what)
	}
	for _, name := range platformTokens {
		if slices.Contains(strings.Split(dir, string(filepath.Separator)), name) {
			return refuse("tokens of the node (" + name + ")")
		}
	}
	for _, file := range own {
		if below(dir, realPath(file.path)) || below(absolute(f.SecretDir), absolute(file.path)) {
			return refuse(file.name)
		}
	}
	return searchOwn(dir, own, refuse)
}

// searchOwn looks for tokens of platforms, and for other links to the node's own files.
func searchOwn(dir string, own []ownFile, refuse func(what string) error) error {
	known := map[string]fs.FileInfo{}
	for _, file := range own {
		if info, err := os.Stat(file.path); err == nil {
			known[file.name] = info
		}
	}
	seen := 0
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what the node cannot read, jobs cannot use
		}
		if seen++; seen > mostSecretFiles {
			return fs.SkipAll
		}
		if slices.Contains(platformTokens, entry.Name()) {
			return refuse("tokens of the node (" + entry.Name() + ")")
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // it is gone
		}
		for name, file := range known {
			if os.SameFile(file, info) {
				return refuse(name)
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it may be made later
	}
	return err
}

// ownFiles lists the files of the node that no job may use.
func (s Flags) ownFiles() []ownFile {
	path, _ := envFilePath()
	all := []ownFile{
		{"--tls-key", s.TLSKey}, {"--tls-cert", s.TLSCert}, {"--secret-keys-file", s.SecretKeysFile},
		{"--vault-token-file", s.VaultTokenFile}, {"--oidc-client-secret-file", s.OIDCClientSecretFile},
		{"--database-password-file", s.DatabasePasswordFile}, {"the settings in " + path, path},
	}
	for _, database := range []string{s.Database, s.NotifyDatabase} {
		address, query, _ := strings.Cut(database, "?")
		if file, ok := strings.CutPrefix(address, "sqlite:"); ok {
			all = append(all, ownFile{"the database", file})
		}
		parameters, _ := url.ParseQuery(query) // the check of the URL reports what is wrong
		for _, parameter := range []string{"passfile", "sslkey", "sslcert"} {
			all = append(all, ownFile{parameter + " of the database", parameters.Get(parameter)})
		}
	}
	for _, variable := range []string{
		"PGPASSFILE", "PGSSLKEY", "PGSSLCERT", "PGSERVICEFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE",
		"AWS_CONFIG_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	} {
		all = append(all, ownFile{"the file that " + variable + " names", os.Getenv(variable)})
	}
	if home, err := os.UserHomeDir(); err == nil {
		all = append(all, ownFile{"~/.pgpass", filepath.Join(home, ".pgpass")}, ownFile{"~/.aws", filepath.Join(home, ".aws", "credentials")})
	}
	return slices.DeleteFunc(all, func(file ownFile) bool {
		_, err := os.Stat(file.path)
		return file.path == "" || err != nil
	})
}

// realPath is a path without links, as far as it exists.
func realPath(path string) string {
	if found, err := filepath.EvalSymlinks(path); err == nil {
		path = found
	}
	return absolute(path)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// below reports whether a file is in a directory, however deep.
func below(dir, file string) bool {
	between, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(between)
}
