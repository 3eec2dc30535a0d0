package web

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// assertionLife is how long the JWT of a client is valid. It is used at once; the rest is for clocks that differ.
const assertionLife = 2 * time.Minute

// assertion returns a JWT that proves who the client is (RFC 7523, section 3). Its error contains none of the key.
func (c oauth2Client) assertion(now time.Time) (string, error) {
	algorithm := cmp.Or(c.Algorithm, target.AlgorithmRS256)
	key, err := target.ParseAssertionKey(c.secret, algorithm)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType("JWT")
	if c.KeyID != "" {
		options.WithHeader("kid", c.KeyID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: key}, options)
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": c.ClientID, "sub": c.ClientID, "aud": c.TokenURL, "jti": rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(assertionLife).Unix(),
	})
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
