package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// The key of callbacks outlives each change of the key-encryption keys, and is readable without them only until there are
// some.
func TestCallbackKeyIsSealedOnceThereAreKeys(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		read := func(letters string) []byte {
			t.Helper()
			var keys *seal.Keys
			if letters != "" {
				keys = sealKeys(t, letters)
			}
			s := openWith(t, database, keys)
			key, err := s.CallbackKey(t.Context())
			must(t, err)
			must(t, s.Close())
			return key
		}
		plain := read("")
		if diff := cmp.Diff(plain, read("a")); diff != "" {
			t.Errorf("the key after there are keys (-before +after):\n%s", diff)
		}
		if _, err := store.Open(t.Context(), database, store.Options{}); !errors.Is(err, dispatcher.ErrKeyMissing) {
			t.Errorf("open without the keys: got error %v, want ErrKeyMissing", err)
		}
		both := openWith(t, database, sealKeys(t, "ba"))
		if n, err := both.RewrapSecrets(t.Context(), input.Change{Actor: "test"}); n != 1 || err != nil {
			t.Errorf("rewrapped %d, %v; want the key of callbacks", n, err)
		}
		must(t, both.Close())
		after := openWith(t, database, sealKeys(t, "b"))
		key, err := after.CallbackKey(t.Context())
		must(t, err)
		if diff := cmp.Diff(plain, key); diff != "" {
			t.Errorf("the key under another key (-before +after):\n%s", diff)
		}
	})
}
