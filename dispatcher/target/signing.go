package target

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Signing signs requests by the Standard Webhooks specification.
type Signing struct {
	// Secrets are 1 to MaxSigningSecrets secrets by name. A request has a signature for each, so receivers can verify
	// while a secret is being replaced. See ParseSigningKey.
	Secrets map[string]Secret `json:"secrets" schema:"required,max=5,min=1"`
}

// MaxSigningSecrets bounds the signatures of a request.
const MaxSigningSecrets = 5

func (s *Signing) check(problems *input.Problems, path string) {
	if s == nil {
		return
	}
	path += "/secrets"
	switch n := len(s.Secrets); {
	case n == 0:
		problems.Add(path, input.CodeRequired, "signing has no secret; give it at least one, under a name")
	case n > MaxSigningSecrets:
		problems.Add(path, input.CodeTooMany, "signing has %d secrets; the maximum is %d", n, MaxSigningSecrets)
		return
	}
	for _, name := range input.SortedKeys(s.Secrets) {
		at := path + input.Pointer(name)
		input.CheckName(problems, at, name)
		s.Secrets[name].check(problems, at, func(value string) error {
			_, err := ParseSigningKey(value)
			return err
		})
	}
}

// SigningKey is the key in a signing secret; one of its fields is set.
type SigningKey struct {
	HMAC    []byte
	Private ed25519.PrivateKey
}

// ParseSigningKey reads a signing secret: whsec_ and base64 of 24 to 64 bytes for HMAC-SHA256 (v1), or whsk_ and
// base64 of an ed25519 private key (v1a), its seed or both halves. The error is a *Problem without a path or any of
// the text.
func ParseSigningKey(text string) (SigningKey, error) {
	problem := func(code, format string, args ...any) (SigningKey, error) {
		return SigningKey{}, &input.Problem{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	encoded, symmetric := strings.CutPrefix(text, "whsec_")
	if !symmetric {
		var private bool
		if encoded, private = strings.CutPrefix(text, "whsk_"); !private {
			return problem(input.CodeSecretForm, "signing secret begins with neither whsec_ nor whsk_")
		}
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return problem(input.CodeSecretLength, "what follows the prefix of the signing secret is not base64 of a key")
	}
	switch n := len(raw); {
	case symmetric && (n < 24 || n > 64):
		return problem(input.CodeSecretLength, "signing secret has %d bytes; the length is 24 to 64", n)
	case symmetric:
		return SigningKey{HMAC: raw}, nil
	case n == ed25519.SeedSize:
		return SigningKey{Private: ed25519.NewKeyFromSeed(raw)}, nil
	case n == ed25519.PrivateKeySize:
		return SigningKey{Private: raw}, nil
	default:
		return problem(input.CodeSecretLength, "signing secret has %d bytes; an ed25519 private key has 32, or 64 with the public one", n)
	}
}

// CloudEvents is the mode in which a request is a CloudEvent 1.0; empty if it is not one.
type CloudEvents string

// The modes of CloudEvents.
const (
	CloudEventsBinary     CloudEvents = "binary"     // attributes are headers
	CloudEventsStructured CloudEvents = "structured" // the body is an envelope around the payload
)

// CloudEventsModes are all modes.
var CloudEventsModes = []CloudEvents{CloudEventsBinary, CloudEventsStructured}
