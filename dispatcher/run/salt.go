package run

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Salt is a secret of an app. It is a part of the ids of runs that follow others and of notifications, so that nobody who knows
// names and times computes those of another app. It leaves its installation in an Export only. It is SaltBytes long, or empty for
// an app that came from an export without one: names and times determine its ids.
type Salt []byte

// SaltBytes is the length of a salt.
const SaltBytes = 16

// NewSalt draws a salt.
func NewSalt() Salt {
	salt := make(Salt, SaltBytes)
	_, _ = rand.Read(salt) // never fails since Go 1.24
	return salt
}

// HashID is the function hashID with the salt. The parts have the key of something of the app in them, so that the salt of one app,
// whatever it is, leads to no id of another app.
func (s Salt) HashID(parts ...string) int64 {
	if len(s) == 0 {
		return HashID(parts...)
	}
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(strings.Join(parts, "/")))
	return idOfSum(mac.Sum(nil))
}

// MarshalText returns s in base64.
func (s Salt) MarshalText() ([]byte, error) { return base64.StdEncoding.AppendEncode(nil, s), nil }

// UnmarshalText reads what MarshalText wrote. The error is a Problem, and does not tell the text.
func (s *Salt) UnmarshalText(text []byte) error {
	salt, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return &input.Problem{Code: input.CodeJSONType, Message: "the salt is not base64; take the file as carillon app export wrote it"}
	}
	*s = salt
	return nil
}

// Check adds a problem if s is no salt. The problem does not tell the salt.
func (s Salt) Check(problems *input.Problems, at string) {
	if len(s) != 0 && len(s) != SaltBytes {
		problems.Add(at, input.CodeCountRange, "the salt has %d bytes, and not %d; take the file as carillon app export wrote it", len(s),
			SaltBytes)
	}
}
