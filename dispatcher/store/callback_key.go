package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// The key of the tokens of callbacks is stored with the secrets, as that of an owner 0, if there are key-encryption keys;
// else it is as it is in the row of the installation. It is sealed when there are keys for the first time.
const (
	callbackKeyPath  = "/callback_key"
	callbackKeyBytes = 32
)

// callbackKeyPlace is what the sealed key is bound to.
const callbackKeyPlace = "installation callback_key"

// CallbackKey returns the key by which the tokens of callbacks are made.
func (s *Store) CallbackKey(ctx context.Context) ([]byte, error) {
	key, done, err := s.readCallbackKey(ctx, s.db.Read)
	if err == nil && !done {
		err = s.change(ctx, input.Change{}, func(ctx context.Context, t *tx) error {
			// Another node may draw one just now.
			if _, _, err := db.First(ctx, t, db.ScanText, `SELECT id FROM installation`+t.ForUpdate()); err != nil {
				return err
			}
			if key, done, err = s.readCallbackKey(ctx, t); err != nil || done {
				return err
			}
			if key == nil {
				key = make([]byte, callbackKeyBytes)
				_, _ = rand.Read(key) // never fails since Go 1.24
			}
			return s.writeCallbackKey(ctx, t, key)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("key of callbacks: %w", err)
	}
	return key, nil
}

// readCallbackKey reads the key; nil: there is none. done tells that it is stored as it should be.
func (s *Store) readCallbackKey(ctx context.Context, q db.Querier) (key []byte, done bool, err error) {
	// $1 path
	const sealed = `SELECT ` + sealedColumns + ` FROM secrets AS s WHERE s.owner_id = 0 AND s.path = $1`
	row, found, err := db.First(ctx, q, scanSealed, sealed, callbackKeyPath)
	if err != nil {
		return nil, false, err
	}
	text := ""
	if found {
		text, err = s.keys.Open(row.Sealed, callbackKeyPlace)
	} else {
		text, _, err = db.First(ctx, q, db.ScanText, `SELECT callback_key FROM installation`)
	}
	if err != nil || text == "" {
		return nil, false, err
	}
	key, err = hex.DecodeString(text)
	return key, found || s.keys == nil, err
}

// writeCallbackKey stores the key.
func (s *Store) writeCallbackKey(ctx context.Context, t *tx, key []byte) error {
	text := hex.EncodeToString(key)
	if s.keys != nil {
		row := sealedRow{path: callbackKeyPath, Sealed: s.keys.Seal(text, callbackKeyPlace)}
		if err := putSealed(ctx, t, row); err != nil {
			return err
		}
		text = ""
	}
	// $1 key
	_, err := t.ExecContext(ctx, `UPDATE installation SET callback_key = $1`, text)
	return err
}

// rewrapCallbackKey brings the key under the current key-encryption key, and returns how many it has changed.
func (s *Store) rewrapCallbackKey(ctx context.Context, t *tx) (int, error) {
	// $1 path, $2 current key
	const others = `SELECT ` + sealedColumns + ` FROM secrets AS s WHERE s.owner_id = 0 AND s.path = $1 AND s.key_id <> $2`
	row, found, err := db.First(ctx, t, scanSealed, others+t.ForUpdate(), callbackKeyPath, s.keys.Current())
	if err != nil || !found {
		return 0, err
	}
	if row.Sealed, err = s.keys.Rewrap(row.Sealed, callbackKeyPlace); err != nil {
		return 0, fmt.Errorf("key of callbacks: %w", err)
	}
	return 1, putSealed(ctx, t, row)
}
