// Package seal encrypts stored secrets.
//
// Each secret has its own data key, which encrypts it (AES-256-GCM) and is stored next to it, encrypted by a
// key-encryption key that no database contains. The first of several such keys encrypts and all decrypt, so that a key
// can be replaced without making any secret unreadable. A ciphertext is bound to its place, including its version:
// moved to another row, or put back after it was replaced, it does not decrypt.
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

// keySize is the size of all keys, in bytes.
const keySize = 32

// Keys are key-encryption keys; nil: none.
type Keys struct {
	ids []string // in the given order
	of  map[string]cipher.AEAD
}

// Sealed is a secret in its stored form.
type Sealed struct {
	KeyID      string // of the key-encryption key
	DataKey    []byte // encrypted by that key
	Ciphertext []byte // encrypted by the data key
}

// ErrNoKey means that the key of a secret is unknown.
var ErrNoKey = errors.New("no key for it is known")

// Parse reads keys of 32 bytes in base64, separated by commas or white space. Its error does not contain them; without
// keys the result is nil.
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

// keyID names a key without revealing it.
func keyID(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("carillon key id"))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Has reports whether a key with this id is known.
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

// Open decrypts a secret sealed for a place. The error is ErrNoKey, or says that it was changed.
func (k *Keys) Open(s Sealed, place string) (string, error) {
	key, err := k.dataKey(s, place)
	if err != nil {
		return "", err
	}
	text, err := decrypt(gcm(key), s.Ciphertext, place)
	return string(text), err
}

// Rewrap encrypts the data key of a secret with the current key; the secret itself does not change.
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

// errAltered covers all causes of failed decryption, which are indistinguishable.
var errAltered = errors.New("it was altered, or is that of another place, or an older one")

// gcm makes a cipher from a key of 32 bytes, which cannot fail.
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
