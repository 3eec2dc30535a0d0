package invoke

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// sign returns the header webhook-signature of Standard Webhooks: one signature for each secret, in
// the order of their names.
func (h *webhooks) sign(r *request, s *dispatcher.Signing, id string, at time.Time) (string, error) {
	var b strings.Builder
	head := id + "." + strconv.FormatInt(at.Unix(), 10) + "."
	for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
		text, err := h.reveal(r, "signing "+name, s.Secrets[name], at)
		if err != nil {
			return "", err
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if err := appendSignature(&b, text, head, r.body); err != nil {
			return "", badSecret("signing "+name, err)
		}
	}
	return b.String(), nil
}

// appendSignature appends the signature of head and body by one secret.
func appendSignature(b *strings.Builder, secret, head string, body []byte) error {
	key, err := dispatcher.ParseSigningKey(secret)
	if err != nil {
		return err
	}
	var signature []byte
	if key.Private != nil {
		b.WriteString("v1a,")
		signature = ed25519.Sign(key.Private, append([]byte(head), body...))
	} else {
		b.WriteString("v1,")
		mac := hmac.New(sha256.New, key.HMAC)
		mac.Write([]byte(head))
		mac.Write(body)
		signature = mac.Sum(nil)
	}
	b.WriteString(base64.StdEncoding.EncodeToString(signature))
	return nil
}
