package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// keysFlag holds the keys that encrypt stored secrets.
type keysFlag struct {
	SecretKeys     string `env:"CARILLON_SECRET_KEYS" placeholder:"KEY,..." help:"Keys of stored secrets, 32 bytes in base64 each, or kms:ARN:BLOB as KMS has encrypted them. The first encrypts, all decrypt. Prefer the variable: other users of the machine can see flags."`
	SecretKeysFile string `env:"CARILLON_SECRET_KEYS_FILE" placeholder:"FILE" help:"File with these keys, one per line."`
}

// check reports what is wrong with the keys, as far as that can be told without KMS.
func (k keysFlag) check() error {
	_, err := k.parse(standIn)
	return err
}

// keys reads the keys, and has KMS decrypt those that it has encrypted; nil without any. Errors never show a key. They are
// usage errors unless KMS is unreachable.
func (k keysFlag) keys(ctx context.Context) (*seal.Keys, error) {
	keys, err := k.parse(func(key kmsKey) ([]byte, error) { return decryptKMSKey(ctx, key) })
	if err != nil && !secretmanager.IsTemporary(err) {
		err = &usageError{err}
	}
	return keys, err
}

// parse reads the keys. decrypt is for those that KMS has encrypted.
func (k keysFlag) parse(decrypt func(kmsKey) ([]byte, error)) (*seal.Keys, error) {
	if k.SecretKeys != "" && k.SecretKeysFile != "" {
		return nil, errors.New("--secret-keys (CARILLON_SECRET_KEYS) and --secret-keys-file (CARILLON_SECRET_KEYS_FILE) " +
			"exclude each other; set one")
	}
	text, from := k.SecretKeys, "--secret-keys (CARILLON_SECRET_KEYS)"
	if k.SecretKeysFile != "" {
		content, err := os.ReadFile(k.SecretKeysFile)
		if err != nil {
			return nil, fmt.Errorf("--secret-keys-file (CARILLON_SECRET_KEYS_FILE): %w", err)
		}
		text, from = string(content), "--secret-keys-file (CARILLON_SECRET_KEYS_FILE) "+input.Echo(k.SecretKeysFile)
	}
	text, err := replaceKMSKeys(text, decrypt)
	var keys *seal.Keys
	if err == nil {
		keys, err = seal.Parse(text)
	}
	if err == nil && keys == nil && k.SecretKeysFile != "" {
		err = errors.New("the file holds no key")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return keys, nil
}

// secretCommand manages the keys of stored secrets.
type secretCommand struct {
	Key    secretKeyCommand    `cmd:"" help:"Print a new key, or write it to a file. With --kms, only AWS KMS can decrypt it." example:"carillon secret key --out new.key"`
	Rewrap secretRewrapCommand `cmd:"" help:"Encrypt all stored secrets with the first key, so that you can remove the others." example:"carillon secret rewrap --database postgres://carillon@db/carillon --secret-keys-file keys"`
}

// secretKeyCommand creates a key.
type secretKeyCommand struct {
	KMS string `name:"kms" placeholder:"ARN" help:"Have this key of AWS KMS create the key and encrypt it. Nodes have KMS decrypt it when they start."`
	Out string `placeholder:"FILE" help:"Write the key to a new file that only its owner can read, instead of printing it."`
}

// Run prints or writes the key.
func (s *secretKeyCommand) Run(ctx context.Context, c console) error {
	key := newKey()
	if s.KMS != "" {
		var err error
		if key, err = newKMSKey(ctx, s.KMS); err != nil {
			return err
		}
	}
	if s.Out != "" {
		return writeNewFile(s.Out, key+"\n")
	}
	_, err := fmt.Fprintln(c.out, key)
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
	keys, err := r.keys(ctx)
	if err == nil && keys == nil {
		err = &usageError{errors.New("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) or --secret-keys (CARILLON_SECRET_KEYS): " +
			"set the new key, followed by the old ones")}
	}
	if err != nil {
		return err
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
