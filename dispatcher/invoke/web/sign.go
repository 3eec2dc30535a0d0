package web

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// sign returns the header webhook-signature of Standard Webhooks: one signature for each secret, in
// the order of their names.
func (h *Webhooks) sign(
	ctx context.Context, r *Request, s *target.Signing, id string, at time.Time,
) (string, error) {
	names := make([]string, 0, len(s.Secrets))
	for name := range s.Secrets {
		names = append(names, name)
	}
	slices.Sort(names)
	head := append(strconv.AppendInt(append(make([]byte, 0, 64), id+"."...), at.Unix(), 10), '.')
	header := make([]byte, 0, 64)
	for _, name := range names {
		text, err := h.Reveal(ctx, r, "signing "+name, s.Secrets[name], at)
		if err != nil {
			return "", err
		}
		if len(header) > 0 {
			header = append(header, ' ')
		}
		if header, err = appendSignature(header, text, head, r.Body); err != nil {
			return "", attempt.BadSecret("signing "+name, err)
		}
	}
	return string(header), nil
}

// appendSignature appends the signature of head and body by one secret.
func appendSignature(header []byte, secret string, head, body []byte) ([]byte, error) {
	key, err := target.ParseSigningKey(secret)
	if err != nil {
		return nil, err
	}
	if key.Private != nil {
		signature := ed25519.Sign(key.Private, slices.Concat(head, body))
		return base64.StdEncoding.AppendEncode(append(header, "v1a,"...), signature), nil
	}
	mac := hmac.New(sha256.New, key.HMAC)
	mac.Write(head)
	mac.Write(body)
	return base64.StdEncoding.AppendEncode(append(header, "v1,"...), mac.Sum(nil)), nil
}
