package run

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Salt is a secret of an app. It is a part of the ids of events, of runs that follow others and of notifications, so that nobody who
// knows names and times computes those of another app. It leaves its installation in an Export only. It is SaltBytes long. One of
// olderSaltBytes is of an app of an older version, which had none in the ids of events; with it, they stay as they were. An app that
// came from an export without one has an empty salt: names and times determine all its ids.
type Salt []byte

// SaltBytes is the length of a salt, and olderSaltBytes that of one which is in no id of an event.
const (
	SaltBytes      = 32
	olderSaltBytes = 16
)

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

// Origin is what fires come from, by the names that it had first.
type Origin struct{ Installation, App, Job, Trigger string }

// EventID returns the webhook-id of a fire of the app: a function of the salt, the installation, the names, the instant and the
// kind, equal on every attempt and after a restore of the database, so that receivers can drop duplicates. It holds no ".", which
// Standard Webhooks reserves.
func (s Salt) EventID(of Origin, at time.Time, kind Kind) string {
	text := append(make([]byte, 0, 128), "event/"...)
	unsalted := len(text)
	for _, part := range [...]string{of.Installation, of.App, of.Job, of.Trigger} {
		text = append(append(text, part...), '/')
	}
	text = append(append(strconv.AppendInt(text, at.UnixMilli(), 10), '/'), kind...)
	var sum [sha256.Size]byte
	if len(s) < SaltBytes {
		sum = sha256.Sum256(text[unsalted:])
	} else {
		mac := hmac.New(sha256.New, s)
		mac.Write(text)
		mac.Sum(sum[:0])
	}
	return string(idEncoding.AppendEncode(append(text[:0], "evt_"...), sum[:16]))
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
	if len(s) != 0 && len(s) != olderSaltBytes && len(s) != SaltBytes {
		problems.Add(at, input.CodeCountRange, "the salt has %d bytes, and not %d or %d; take the file as carillon app export wrote it",
			len(s), olderSaltBytes, SaltBytes)
	}
}
