// Package seal encrypts what is stored secretly.
//
// Each secret has a data key of its own, by which it is encrypted (AES-256-GCM), and which is
// stored next to it, encrypted by a key-encryption key that no database holds. Of several such
// keys the first encrypts and all decrypt, so that one can be replaced without a moment in
// which anything is unreadable. What is encrypted is bound to its place, of which its version is a
// part: moved to another row, or put back after it was replaced, it does not decrypt.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// keySize is that of all keys, in bytes.
const keySize = 32

// Keys are key-encryption keys. Nil is none.
type Keys struct {
	ids []string // in the order in which they were given
	of  map[string]cipher.AEAD
}

// Sealed is a secret as it is stored.
type Sealed struct {
	KeyID      string // of the key-encryption key
	DataKey    []byte // encrypted by that
	Ciphertext []byte // encrypted by the data key
}

// ErrNoKey says that none of the keys is that by which a secret was sealed.
var ErrNoKey = errors.New("no key for it is known")

// Parse reads keys of 32 bytes in base64, separated by commas or white space. Its error holds
// nothing of them; without any, the result is nil.
func Parse(text string) (*Keys, error) {
	k := &Keys{of: map[string]cipher.AEAD{}}
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\r' || r == '\n' })
	for i, field := range fields {
		key, err := base64.StdEncoding.DecodeString(field)
		if err != nil {
			return nil, fmt.Errorf("key %d is not base64", i+1)
		}
		if len(key) != keySize {
			return nil, fmt.Errorf("key %d has %d bytes; a key has %d, as openssl rand -base64 %d prints one", i+1, len(key), keySize, keySize)
		}
		id := keyID(key)
		if k.of[id] != nil {
			return nil, fmt.Errorf("key %d is given twice", i+1)
		}
		k.ids, k.of[id] = append(k.ids, id), gcm(key)
	}
	if len(k.ids) == 0 {
		return nil, nil
	}
	return k, nil
}

// keyID names a key without telling anything of it.
func keyID(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("carillon key id"))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Has tells whether a key of that id is known.
func (k *Keys) Has(id string) bool { return k != nil && k.of[id] != nil }

// Current is the id of the key that encrypts.
func (k *Keys) Current() string { return k.ids[0] }

// Seal encrypts a text for a place.
func (k *Keys) Seal(text, place string) Sealed {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails since Go 1.24
	id := k.Current()
	return Sealed{
		KeyID:      id,
		DataKey:    encrypt(k.of[id], key, place),
		Ciphertext: encrypt(gcm(key), []byte(text), place),
	}
}

// Open decrypts what was sealed for a place. The error is ErrNoKey, or says that it was changed.
func (k *Keys) Open(s Sealed, place string) (string, error) {
	key, err := k.dataKey(s, place)
	if err != nil {
		return "", err
	}
	text, err := decrypt(gcm(key), s.Ciphertext, place)
	return string(text), err
}

// Rewrap encrypts the data key of a secret by the current key; the secret stays as it is.
func (k *Keys) Rewrap(s Sealed, place string) (Sealed, error) {
	key, err := k.dataKey(s, place)
	if err != nil {
		return s, err
	}
	s.KeyID = k.Current()
	s.DataKey = encrypt(k.of[s.KeyID], key, place)
	return s, nil
}

func (k *Keys) dataKey(s Sealed, place string) ([]byte, error) {
	if !k.Has(s.KeyID) {
		return nil, fmt.Errorf("sealed under key %s: %w", s.KeyID, ErrNoKey)
	}
	key, err := decrypt(k.of[s.KeyID], s.DataKey, place)
	if err == nil && len(key) != keySize {
		err = errAltered
	}
	return key, err
}

// errAltered is all that can be said of what does not decrypt.
var errAltered = errors.New("it was altered, or is that of another place, or an older one")

// gcm makes a cipher of a key of 32 bytes, which cannot fail.
func gcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func encrypt(aead cipher.AEAD, text []byte, place string) []byte {
	return aead.Seal(nil, nil, text, []byte(place))
}

func decrypt(aead cipher.AEAD, sealed []byte, place string) ([]byte, error) {
	text, err := aead.Open(nil, nil, sealed, []byte(place))
	if err != nil {
		return nil, errAltered
	}
	return text, nil
}
