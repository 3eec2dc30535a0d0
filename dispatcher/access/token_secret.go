package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// TokenPrefix lets secret scanners and people recognize a leaked token.
const TokenPrefix = "carillon_"

// NewToken draws a random bearer token of 256 bits. The secret goes to its owner and is stored
// nowhere; the hash goes to the store.
func NewToken() (secret string, hash [32]byte) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails; see its documentation
	secret = TokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return secret, HashToken(secret)
}

// HashToken returns the hash by which the store finds a token.
func HashToken(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// NewTokenID draws the id of a token.
func NewTokenID() string { return strings.ToLower(rand.Text()) }
