package seal_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

func key(fill string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

func parse(t *testing.T, text string) *seal.Keys {
	t.Helper()
	keys, err := seal.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestFirstKeyEncryptsAndAllDecrypt(t *testing.T) {
	t.Parallel()
	before := parse(t, key("a"))
	both := parse(t, key("b")+" ,\n"+key("a")+"\n")
	after := parse(t, key("b"))
	old := before.Seal("hunter2", "here")
	if text, err := both.Open(old, "here"); err != nil || text != "hunter2" {
		t.Errorf("both keys open %q, %v", text, err)
	}
	if _, err := after.Open(old, "here"); !errors.Is(err, seal.ErrNoKey) || !strings.Contains(err.Error(), old.KeyID) {
		t.Errorf("the other key says %v, want that there is no key for it, and which", err)
	}
	if _, err := (*seal.Keys)(nil).Open(old, "here"); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("no key says %v, want that there is none", err)
	}
	if _, err := after.Open(both.Seal("x", "here"), "here"); err != nil {
		t.Errorf("what the first of two keys sealed: %v", err)
	}
	again, err := both.Rewrap(old, "here")
	if err != nil || again.KeyID != after.Current() || string(again.Ciphertext) != string(old.Ciphertext) {
		t.Errorf("rewrapped = %+v, %v, want the same text under the first key", again, err)
	}
	if text, err := after.Open(again, "here"); err != nil || text != "hunter2" {
		t.Errorf("the new key opens %q, %v", text, err)
	}
}

func TestSealedValueOpensOnlyUnalteredForItsJob(t *testing.T) {
	t.Parallel()
	keys := parse(t, key("a"))
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.String().Draw(r, "text")
		sealed := keys.Seal(text, "here")
		if opened, err := keys.Open(sealed, "here"); err != nil || opened != text {
			r.Fatalf("opened %q, %v, want %q", opened, err, text)
		}
		if strings.Contains(string(sealed.Ciphertext), text) && len(text) > 4 {
			r.Fatalf("the ciphertext holds the text")
		}
		if _, err := keys.Open(sealed, "there"); err == nil {
			r.Fatalf("opened in another place")
		}
		flip := func(b []byte) []byte {
			b = append([]byte{}, b...)
			b[rapid.IntRange(0, len(b)-1).Draw(r, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(r, "bit")
			return b
		}
		for _, altered := range []seal.Sealed{
			{KeyID: sealed.KeyID, DataKey: flip(sealed.DataKey), Ciphertext: sealed.Ciphertext},
			{KeyID: sealed.KeyID, DataKey: sealed.DataKey, Ciphertext: flip(sealed.Ciphertext)},
			{KeyID: sealed.KeyID, DataKey: sealed.DataKey[:5], Ciphertext: sealed.Ciphertext},
		} {
			if _, err := keys.Open(altered, "here"); err == nil {
				r.Fatalf("opened although altered")
			}
		}
		if other := keys.Seal(text, "here"); string(other.Ciphertext) == string(sealed.Ciphertext) ||
			string(other.DataKey) == string(sealed.DataKey) {
			r.Fatalf("sealed twice alike")
		}
	})
}

func TestBadKeysAreRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	short := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 31)))
	for text, says := range map[string]string{
		short: "31 bytes", key("a") + "," + short: "key 2", "hunter2!": "not base64", key("a") + "," + key("a"): "twice",
		base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 33))): "33 bytes",
	} {
		if _, err := seal.Parse(text); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), text) {
			t.Errorf("Parse(%q) = %v, want an error that says %q and does not show it", text, err, says)
		}
	}
	if keys, err := seal.Parse(" \n"); keys != nil || err != nil {
		t.Errorf("no key = %v, %v, want nil", keys, err)
	}
}
