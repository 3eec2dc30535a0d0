package target

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// secretError says that a secret of a target cannot be used; the words hold none of it.
type secretError struct {
	field string
	err   error
}

func (e *secretError) Error() string { return "secret " + e.field + ": " + e.err.Error() }

func (e *secretError) Unwrap() error { return e.err }

// sign returns webhook-signature of Standard Webhooks: a signature for each secret, in the
// order of their names.
func (i *Invoker) sign(s *dispatcher.Signing, id string, at time.Time, body []byte) (string, error) {
	var b strings.Builder
	head := id + "." + strconv.FormatInt(at.Unix(), 10) + "."
	for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
		text, err := i.secrets.reveal(s.Secrets[name], at)
		if err == nil {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			err = appendSignature(&b, text, head, body)
		}
		if err != nil {
			return "", &secretError{"signing " + name, err}
		}
	}
	return b.String(), nil
}

// appendSignature signs head and body by a secret.
func appendSignature(b *strings.Builder, secret, head string, body []byte) error {
	key, private, err := parseSigningSecret(secret)
	if err != nil {
		return err
	}
	var signature []byte
	if private != nil {
		b.WriteString("v1a,")
		signature = ed25519.Sign(private, append([]byte(head), body...))
	} else {
		b.WriteString("v1,")
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(head))
		mac.Write(body)
		signature = mac.Sum(nil)
	}
	b.WriteString(base64.StdEncoding.EncodeToString(signature))
	return nil
}

// parseSigningSecret returns what a secret signs with: a key for HMAC or a private one.
func parseSigningSecret(text string) (key []byte, private ed25519.PrivateKey, err error) {
	encoded, symmetric := strings.CutPrefix(text, "whsec_")
	if !symmetric {
		var ok bool
		if encoded, ok = strings.CutPrefix(text, "whsk_"); !ok {
			return nil, nil, errors.New("it begins with neither whsec_ nor whsk_")
		}
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, nil, errors.New("what follows its prefix is not base64")
	}
	switch n := len(raw); {
	case symmetric && (n < 24 || n > 64):
		return nil, nil, fmt.Errorf("it has %d bytes; the length is 24 to 64", n)
	case symmetric:
		return raw, nil, nil
	case n == ed25519.SeedSize:
		return nil, ed25519.NewKeyFromSeed(raw), nil
	case n == ed25519.PrivateKeySize:
		return nil, raw, nil
	default:
		return nil, nil, fmt.Errorf("it has %d bytes; an ed25519 key has 32, or 64 with the public one", n)
	}
}
