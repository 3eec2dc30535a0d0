package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// keysFlag holds the keys that encrypt stored secrets.
type keysFlag struct {
	SecretKeys     string `env:"CARILLON_SECRET_KEYS" placeholder:"KEY,..." help:"Keys of stored secrets, 32 bytes in base64 each. The first encrypts, all decrypt. Prefer the variable: other users of the machine can see flags."`
	SecretKeysFile string `env:"CARILLON_SECRET_KEYS_FILE" placeholder:"FILE" help:"File with these keys, one per line."`
}

// keys reads the keys; nil without any. Errors never show a key.
func (k keysFlag) keys() (*seal.Keys, error) {
	if k.SecretKeys != "" && k.SecretKeysFile != "" {
		return nil, errors.New("--secret-keys (CARILLON_SECRET_KEYS) and --secret-keys-file (CARILLON_SECRET_KEYS_FILE) " +
			"exclude each other; set one")
	}
	if k.SecretKeysFile == "" {
		keys, err := seal.Parse(k.SecretKeys)
		if err != nil {
			return nil, fmt.Errorf("--secret-keys (CARILLON_SECRET_KEYS): %w", err)
		}
		return keys, nil
	}
	text, err := os.ReadFile(k.SecretKeysFile)
	if err != nil {
		return nil, fmt.Errorf("--secret-keys-file (CARILLON_SECRET_KEYS_FILE): %w", err)
	}
	keys, err := seal.Parse(string(text))
	if err == nil && keys == nil {
		err = errors.New("the file holds no key")
	}
	if err != nil {
		return nil, fmt.Errorf("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) %s: %w", dispatcher.Echo(k.SecretKeysFile), err)
	}
	return keys, nil
}

// secretCommand manages the keys of stored secrets.
type secretCommand struct {
	Key    secretKeyCommand    `cmd:"" help:"Print a new key, or write it to a file." example:"carillon secret key --out new.key"`
	Rewrap secretRewrapCommand `cmd:"" help:"Encrypt all stored secrets with the first key, so that you can remove the others." example:"carillon secret rewrap --database postgres://carillon@db/carillon --secret-keys-file keys"`
}

// secretKeyCommand creates a key.
type secretKeyCommand struct {
	Out string `placeholder:"FILE" help:"Write the key to a new file that only its owner can read, instead of printing it."`
}

// Run prints or writes the key.
func (s *secretKeyCommand) Run(c console) error {
	if s.Out != "" {
		return writeNewFile(s.Out, newKey()+"\n")
	}
	_, err := fmt.Fprintln(c.out, newKey())
	return err
}

func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails since Go 1.24
	return base64.StdEncoding.EncodeToString(key)
}

// secretRewrapCommand encrypts the data keys again.
type secretRewrapCommand struct {
	databaseFlag
	keysFlag
}

// Run encrypts the data keys with the first key, and prints their number.
func (r *secretRewrapCommand) Run(ctx context.Context, c console) error {
	keys, err := r.keys()
	if err == nil && keys == nil {
		err = errors.New("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) or --secret-keys (CARILLON_SECRET_KEYS): " +
			"set the new key, followed by the old ones")
	}
	if err != nil {
		return &usageError{err}
	}
	s, err := r.open(ctx, keys)
	if err != nil {
		return err
	}
	defer s.Close()
	count, err := s.RewrapSecrets(ctx, byCommandLine())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%d secrets encrypted with key %s\n", count, keys.Current())
	return err
}
