package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// writeFiles writes files into a directory.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A mistake in a file proves that the file is read: "serve --check" names it.
func TestCredentialsOfMachineNeedNoSetting(t *testing.T) {
	t.Parallel()
	const postgres, sqlite = "--database=postgres://me@h/d", "--database=sqlite:x"
	password := map[string]string{"database-password": "hunter2"}
	for name, tt := range map[string]struct {
		files  map[string]string
		env    []string
		flag   string
		errors []string // empty for a valid configuration
	}{
		"no files":              {flag: postgres},
		"a password":            {files: password, flag: postgres},
		"a password for SQLite": {files: password, flag: sqlite, errors: []string{"only PostgreSQL"}},
		"an empty password": {
			files: map[string]string{"database-password": "\n"}, flag: postgres, errors: []string{"no password"}},
		"a password in a variable": {
			files: map[string]string{"database-password": ""}, env: []string{"CARILLON_DATABASE_PASSWORD=x"}, flag: postgres},
		"no password by a variable": {files: password, env: []string{"CARILLON_DATABASE_PASSWORD_FILE="}, flag: sqlite},
		"keys":                      {files: map[string]string{"secret-keys": testKey}, flag: sqlite},
		"invalid keys": {
			files: map[string]string{"secret-keys": "x"}, flag: sqlite, errors: []string{"--secret-keys-file"}},
		"a token of Vault": {
			files: map[string]string{"vault-token": "x"}, env: []string{"CARILLON_VAULT_ADDRESS=https://vault.test"}, flag: sqlite},
		"a token of Vault alone": {
			files: map[string]string{"vault-token": "x"}, flag: sqlite, errors: []string{"--vault-token-file needs --vault-address"}},
		"a key of TLS alone": {
			files: map[string]string{"tls-key": "x"}, flag: sqlite, errors: []string{"--tls-cert", "missing"}},
		"a broken certificate": {
			files: map[string]string{"tls-key": "x", "tls-cert": "x"}, flag: sqlite, errors: []string{"--tls-cert"}},
		"a file of another name": {files: map[string]string{"tls-key.bak": "x"}, flag: sqlite},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine, unit := t.TempDir(), t.TempDir()
			writeFiles(t, machine, map[string]string{"carillon.env": ""})
			writeFiles(t, filepath.Join(machine, "credentials"), tt.files)
			ofUnit := map[string]string{}
			for name, text := range tt.files {
				ofUnit["carillon_"+name] = text
			}
			writeFiles(t, unit, ofUnit)
			for dir, variable := range map[string]string{
				machine: "CARILLON_ENV_FILE=" + filepath.Join(machine, "carillon.env"), unit: "CREDENTIALS_DIRECTORY=" + unit,
			} {
				_, errs, code := carillon(t, append([]string{variable}, tt.env...), "serve", "--check", tt.flag)
				want := tt.errors
				if len(want) > 0 {
					want = append(want, "because "+dir) // the file
				}
				if (code == 0) != (len(want) == 0) {
					t.Errorf("%s: exit %d, %s", variable, code, errs)
				}
				for _, part := range want {
					if !strings.Contains(errs, part) {
						t.Errorf("%s: %s does not contain %q", variable, errs, part)
					}
				}
			}
		})
	}
}
