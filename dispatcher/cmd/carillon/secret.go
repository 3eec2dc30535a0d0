package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// keysFlag says by which keys the values of secrets are stored.
type keysFlag struct {
	SecretKeys     string `env:"CARILLON_SECRET_KEYS" placeholder:"KEY,..." help:"Keys that encrypt stored secrets, 32 bytes in base64 each: the first encrypts, all decrypt. Best given as variable: others may see command lines."`
	SecretKeysFile string `env:"CARILLON_SECRET_KEYS_FILE" placeholder:"FILE" help:"File with these keys, one a line."`
}

// keys reads the keys; nil without any. Its error never shows one.
func (k keysFlag) keys() (*seal.Keys, error) {
	if k.SecretKeys != "" && k.SecretKeysFile != "" {
		return nil, errors.New("--secret-keys (CARILLON_SECRET_KEYS) and --secret-keys-file (CARILLON_SECRET_KEYS_FILE) exclude each other; give one")
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
		err = errors.New("it holds no key")
	}
	if err != nil {
		return nil, fmt.Errorf("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) %s: %w", dispatcher.Echo(k.SecretKeysFile), err)
	}
	return keys, nil
}

// secretCommand is about the keys of stored secrets.
type secretCommand struct {
	Key    secretKeyCommand    `cmd:"" help:"Print a new key for stored secrets."`
	Rewrap secretRewrapCommand `cmd:"" help:"Bring all stored secrets under the first key, so that the others can be removed."`
}

// secretKeyCommand makes a key.
type secretKeyCommand struct{}

// Run prints the key.
func (secretKeyCommand) Run(c console) error {
	_, err := fmt.Fprintln(c.out, newKey())
	return err
}

func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails since Go 1.24
	return base64.StdEncoding.EncodeToString(key)
}

// secretRewrapCommand rewraps the data keys.
type secretRewrapCommand struct {
	databaseFlag
	keysFlag
}

// Run rewraps and says how many.
func (r *secretRewrapCommand) Run(ctx context.Context, c console) error {
	keys, err := r.keys()
	if err == nil && keys == nil {
		err = errors.New("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) or --secret-keys (CARILLON_SECRET_KEYS): give the new key and then the others")
	}
	if err != nil {
		return &usageError{err}
	}
	s, err := store.Open(ctx, r.Database, store.Options{AlongsideNode: true, Keys: keys})
	if err != nil {
		return databaseError(r.Database, err)
	}
	defer s.Close()
	count, err := s.RewrapSecrets(ctx, dispatcher.Change{Actor: "command line"})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%d secrets brought under key %s\n", count, keys.Current())
	return err
}
