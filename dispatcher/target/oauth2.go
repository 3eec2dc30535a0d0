package target

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// OAuth2Auth sends a bearer token that the node gets from an authorization server with the client credentials grant
// (RFC 6749, section 4.4), and keeps until shortly before it expires.
type OAuth2Auth struct {
	// TokenURL is the token endpoint: absolute, http or https, not a template. The bounds of egress apply to it too.
	TokenURL string `json:"token_url" schema:"required,max=2048"`
	// ClientID is 1 to 256 visible characters of ASCII.
	ClientID string `json:"client_id" schema:"required,max=256"`
	// ClientAuth is how the client authenticates; empty means ClientAuthBasic.
	ClientAuth OAuth2ClientAuth `json:"client_auth,omitempty" schema:"default=basic"`
	// ClientSecret is for ClientAuthBasic and ClientAuthPost.
	ClientSecret *Secret `json:"client_secret,omitempty"`
	// PrivateKey is for ClientAuthPrivateKeyJWT, in PEM; see ParseAssertionKey.
	PrivateKey *Secret `json:"private_key,omitempty"`
	// KeyID is sent as kid in the header of the JWT, unless it is empty; at most 256 visible characters of ASCII.
	KeyID string `json:"key_id,omitempty" schema:"max=256"`
	// Algorithm signs the JWT; empty means RS256.
	Algorithm AssertionAlgorithm `json:"algorithm,omitempty" schema:"default=RS256"`
	// Scopes are the scopes of the token, at most MaxScopes; if empty, the authorization server chooses.
	Scopes []string `json:"scopes,omitempty" schema:"each_max=256,max=50,min=1"`
	// Audience is sent as the parameter audience, unless it is empty; at most maxURL characters.
	Audience string `json:"audience,omitempty" schema:"max=2048"`
	// CACertificates are PEM certificates of the authorities to trust for the token endpoint, instead of those of the
	// node's system.
	CACertificates string `json:"ca_certificates,omitempty"`
}

// OAuth2ClientAuth is how a client authenticates at a token endpoint.
type OAuth2ClientAuth string

// The ways in which a client authenticates.
const (
	ClientAuthBasic         OAuth2ClientAuth = "basic"           // HTTP basic authentication (RFC 6749, section 2.3.1)
	ClientAuthPost          OAuth2ClientAuth = "post"            // the secret is in the body
	ClientAuthPrivateKeyJWT OAuth2ClientAuth = "private_key_jwt" // a signed JWT (RFC 7523, section 2.2)
)

// OAuth2ClientAuths are all ways in which a client authenticates.
var OAuth2ClientAuths = []OAuth2ClientAuth{ClientAuthBasic, ClientAuthPost, ClientAuthPrivateKeyJWT}

// AssertionAlgorithm signs the JWT of ClientAuthPrivateKeyJWT, as RFC 7518 names it.
type AssertionAlgorithm string

// The algorithms that sign a JWT.
const (
	AlgorithmRS256 AssertionAlgorithm = "RS256"
	AlgorithmPS256 AssertionAlgorithm = "PS256"
	AlgorithmES256 AssertionAlgorithm = "ES256"
	AlgorithmES384 AssertionAlgorithm = "ES384"
	AlgorithmEdDSA AssertionAlgorithm = "EdDSA"
)

// AssertionAlgorithms are all algorithms that sign a JWT.
var AssertionAlgorithms = []AssertionAlgorithm{AlgorithmRS256, AlgorithmPS256, AlgorithmES256, AlgorithmES384, AlgorithmEdDSA}

// MaxScopes bounds the scopes of a token.
const MaxScopes = 50

var (
	oauth2Word  = regexp.MustCompile(`^[\x21-\x7e]{1,256}$`)
	oauth2Scope = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,256}$`) // RFC 6749, section 3.3
)

func (o *OAuth2Auth) check(problems *input.Problems, path string) {
	o.checkTokenURL(problems, path+"/token_url")
	if o.ClientID == "" {
		problems.Add(path+"/client_id", input.CodeRequired,
			"client id is empty; the authorization server gives it with the secret or for the key")
	} else if !oauth2Word.MatchString(o.ClientID) {
		problems.Add(path+"/client_id", input.CodeTextInvalid, "client id is not 1 to 256 visible characters of ASCII without spaces")
	}
	if o.ClientAuth != "" {
		input.CheckEnum(problems, path+"/client_auth", "client authentication", o.ClientAuth, OAuth2ClientAuths)
	}
	o.checkCredentials(problems, path)
	switch n := len(o.Scopes); {
	case n > MaxScopes:
		problems.Add(path+"/scopes", input.CodeTooMany, "%d scopes are given; the maximum is %d", n, MaxScopes)
	case n == 0 && o.Scopes != nil:
		problems.Add(path+"/scopes", input.CodeRequired, "scopes are an empty list; name one, or remove the list and let the server choose")
	}
	for i, scope := range o.Scopes[:min(len(o.Scopes), MaxScopes)] {
		if !oauth2Scope.MatchString(scope) {
			problems.Add(path+"/scopes/"+strconv.Itoa(i), input.CodeTextInvalid,
				"scope %s is not 1 to 256 visible characters of ASCII without spaces, quotes and backslashes; give one at a time",
				input.Echo(scope))
		}
	}
	if len(o.Audience) > maxURL || strings.ContainsFunc(o.Audience, input.IsControl) || !ascii(o.Audience) {
		problems.Add(path+"/audience", input.CodeTextInvalid,
			"audience has more than %d characters, or some that are not visible ASCII", maxURL)
	}
	(&TLS{CACertificates: o.CACertificates}).check(problems, path)
}

func (o *OAuth2Auth) checkTokenURL(problems *input.Problems, at string) {
	if isTemplate(o.TokenURL) {
		problems.Add(at, input.CodeTemplateHost, "token URL cannot be a template: tokens are shared by the runs of an app")
		return
	}
	checkURL(problems, at, o.TokenURL)
}

// checkCredentials requires the secret or the key, depending on client_auth, and refuses fields that it does not use.
func (o *OAuth2Auth) checkCredentials(problems *input.Problems, path string) {
	if o.ClientAuth != ClientAuthPrivateKeyJWT {
		switch {
		case o.PrivateKey != nil || o.KeyID != "" || o.Algorithm != "":
			problems.Add(path, input.CodeAuthForm, "private_key, key_id and algorithm are for client_auth private_key_jwt; set that, or remove them")
		case o.ClientSecret == nil:
			problems.Add(path+"/client_secret", input.CodeRequired, "client_secret is missing; client_auth %s needs it",
				cmp.Or(o.ClientAuth, ClientAuthBasic))
		default:
			o.ClientSecret.check(problems, path+"/client_secret", headerForm)
		}
		return
	}
	if o.Algorithm != "" {
		input.CheckEnum(problems, path+"/algorithm", "algorithm", o.Algorithm, AssertionAlgorithms)
	}
	if o.KeyID != "" && !oauth2Word.MatchString(o.KeyID) {
		problems.Add(path+"/key_id", input.CodeTextInvalid, "key id is not 1 to 256 visible characters of ASCII without spaces")
	}
	switch {
	case o.ClientSecret != nil:
		problems.Add(path, input.CodeAuthForm, "client_auth private_key_jwt uses private_key and no client_secret; remove client_secret")
	case o.PrivateKey == nil:
		problems.Add(path+"/private_key", input.CodeRequired, "private_key is missing; client_auth %s needs it", o.ClientAuth)
	default:
		o.PrivateKey.check(problems, path+"/private_key", func(value string) error {
			_, err := ParseAssertionKey(value, o.Algorithm)
			return err
		})
	}
}

// ParseAssertionKey reads a private key in PEM, PKCS #8 or the older forms of RSA and EC, that signs with an
// algorithm; an empty one means RS256. The error is a *Problem without a path or any of the text.
func ParseAssertionKey(text string, algorithm AssertionAlgorithm) (crypto.Signer, error) {
	problem := func(format string, args ...any) error {
		return &input.Problem{Code: input.CodeSecretForm, Message: fmt.Sprintf(format, args...)}
	}
	if len(text) > maxAssertionKey {
		return nil, problem("private key has %d bytes; the maximum is 16 KiB", len(text))
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, problem("private key is not PEM (BEGIN PRIVATE KEY)")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		if rsaKey, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			parsed = rsaKey
		} else if ecKey, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			parsed = ecKey
		} else {
			return nil, problem("private key is not an unencrypted RSA, EC or Ed25519 key")
		}
	}
	algorithm = cmp.Or(algorithm, AlgorithmRS256)
	fits := false
	switch key := parsed.(type) {
	case *rsa.PrivateKey:
		if key.N.BitLen() < minRSABits {
			return nil, problem("RSA key has %d bits; the minimum is %d", key.N.BitLen(), minRSABits)
		}
		fits = algorithm == AlgorithmRS256 || algorithm == AlgorithmPS256
	case *ecdsa.PrivateKey:
		curve := map[AssertionAlgorithm]string{AlgorithmES256: "P-256", AlgorithmES384: "P-384"}[algorithm]
		fits = curve == key.Curve.Params().Name
	case ed25519.PrivateKey:
		fits = algorithm == AlgorithmEdDSA
	}
	if !fits {
		return nil, problem("private key does not sign with %s; RS256 and PS256 need an RSA key, ES256 one on P-256, ES384 one on P-384, "+
			"EdDSA an Ed25519 key", input.Echo(string(algorithm)))
	}
	return parsed.(crypto.Signer), nil //nolint:forcetypeassert // each of the types above is a signer
}

// Bounds of a key that signs. An RSA key of 16 KiB is already slower than any authorization server asks for.
const (
	minRSABits      = 2048
	maxAssertionKey = 16 << 10 // bytes of PEM
)

// origin returns where the secrets are sent. They are bound to it in addition to the target.
func (o *OAuth2Auth) origin() string { return (&Webhook{URL: o.TokenURL}).origin() }

// oauth2 returns the client credentials of a, or nil.
func (a *Auth) oauth2() *OAuth2Auth {
	if a == nil {
		return nil
	}
	return a.OAuth2
}

// isOAuth2Secret reports whether the pointer of a secret in a target or a group belongs to client credentials.
func isOAuth2Secret(path string) bool { return strings.Contains(path, "/auth/oauth2/") }

// warn warns of a token endpoint that is called in plain text.
func (o *OAuth2Auth) warn(problems *input.Problems, at string) {
	if o != nil && (&Webhook{URL: o.TokenURL}).isPlain() {
		problems.Add(at+"/token_url", input.CodeAuthPlaintext,
			"the token URL is http, so the token and the secret can be read on the way; use https")
	}
}
