package target

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Auth is how requests authenticate. One of its fields is set.
type Auth struct {
	Basic  *BasicAuth  `json:"basic,omitempty"`
	Bearer *BearerAuth `json:"bearer,omitempty"`
	APIKey *APIKeyAuth `json:"api_key,omitempty"`
	SigV4  *SigV4Auth  `json:"sigv4,omitempty"`
	OAuth2 *OAuth2Auth `json:"oauth2,omitempty"`
}

// BasicAuth is a name and a password (RFC 7617).
type BasicAuth struct {
	// Username has at most 256 characters and no colon.
	Username string `json:"username" schema:"required,max=256"`
	Password Secret `json:"password" schema:"required"`
}

// BearerAuth is a token in Authorization (RFC 6750).
type BearerAuth struct {
	Token Secret `json:"token" schema:"required"`
}

// APIKeyAuth is a key in a header or a query parameter.
type APIKeyAuth struct {
	// Header or Query names it; one of the two is set.
	Header string `json:"header,omitempty"`
	// Name of the query parameter that carries the key, instead of a header.
	Query string `json:"query,omitempty" schema:"max=128"`
	Key   Secret `json:"key" schema:"required"`
}

// SigV4Auth signs requests with AWS Signature Version 4.
type SigV4Auth struct {
	// Service is "lambda" for function URLs, "execute-api" for API Gateway.
	Service string `json:"service" schema:"required"`
	Region  string `json:"region" schema:"required"`
	// Credentials sign the requests; nil for the node's own, which are found as the AWS SDKs find them.
	Credentials *AWSCredentials `json:"credentials,omitempty"`
}

// AWSCredentials are an AWS access key.
type AWSCredentials struct {
	AccessKeyID     string  `json:"access_key_id" schema:"required"`
	SecretAccessKey Secret  `json:"secret_access_key" schema:"required"`
	SessionToken    *Secret `json:"session_token,omitempty"`
}

var (
	awsWord      = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	accessKeyID  = regexp.MustCompile(`^[A-Z0-9]{16,128}$`)
	basicName    = regexp.MustCompile(`^[^:\x00-\x1f\x7f]{0,256}$`)
	queryKeyName = regexp.MustCompile(`^[A-Za-z0-9_.~\[\]-]{1,128}$`)
)

// check reports the problems of a under path. url is the URL of the requests.
func (a *Auth) check(problems *input.Problems, path, url string) {
	if a == nil {
		return
	}
	given := 0
	for _, is := range []bool{a.Basic != nil, a.Bearer != nil, a.APIKey != nil, a.SigV4 != nil, a.OAuth2 != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		problems.Add(path, input.CodeAuthForm, "auth has %d of basic, bearer, api_key, sigv4 and oauth2; give one", given)
	}
	if b := a.Basic; b != nil {
		if !basicName.MatchString(b.Username) {
			problems.Add(path+"/basic/username", input.CodeTextInvalid,
				"user name holds a colon or a control character, or more than 256 characters")
		}
		b.Password.check(problems, path+"/basic/password", headerForm)
	}
	if b := a.Bearer; b != nil {
		b.Token.check(problems, path+"/bearer/token", headerForm)
	}
	if k := a.APIKey; k != nil {
		k.check(problems, path+"/api_key", url)
	}
	if s := a.SigV4; s != nil {
		s.check(problems, path+"/sigv4")
	}
	if o := a.OAuth2; o != nil {
		o.check(problems, path+"/oauth2")
	}
}

// headerForm checks a value that goes into a header.
func headerForm(value string) error {
	if !httpguts.ValidHeaderFieldValue(value) {
		return &input.Problem{Code: input.CodeHeaderValue, Message: "secret holds a control character such as CR, LF or NUL, which no header can"}
	}
	return nil
}

func (k *APIKeyAuth) check(problems *input.Problems, path, target string) {
	switch {
	case (k.Header == "") == (k.Query == ""):
		problems.Add(path, input.CodeAuthForm, "api_key needs header or query, the name that the key is sent under; give one of them")
	case k.Header != "" && !httpguts.ValidHeaderFieldName(k.Header):
		problems.Add(path+"/header", input.CodeHeaderName, "header name %s is not a token of letters, digits and !#$%%&'*+-.^_`|~",
			input.Echo(k.Header))
	case k.Header != "" && reservedHeader(strings.ToLower(k.Header)):
		problems.Add(path+"/header", input.CodeHeaderReserved, "header %s is set by Carillon or by HTTP itself; name another",
			input.Echo(k.Header))
	case k.Query != "" && !queryKeyName.MatchString(k.Query):
		problems.Add(path+"/query", input.CodeTextInvalid, "parameter %s is not 1 to 128 letters, digits, and any of _.~-[]", input.Echo(k.Query))
	case k.Query != "":
		if u, err := url.Parse(target); err == nil && u.Query().Has(k.Query) {
			problems.Add(path+"/query", input.CodeAuthForm, "parameter %s is in the URL already; remove it there", input.Echo(k.Query))
		}
	}
	form := headerForm
	if k.Query != "" {
		form = nil
	}
	k.Key.check(problems, path+"/key", form)
}

func (s *SigV4Auth) check(problems *input.Problems, path string) {
	for _, word := range []struct{ name, value, example string }{
		{"service", s.Service, "lambda for function URLs or execute-api for API Gateway"}, {"region", s.Region, "eu-central-1"},
	} {
		if !awsWord.MatchString(word.value) {
			problems.Add(path+"/"+word.name, input.CodeTextInvalid, "%s %s is not an AWS name; write it as %s", word.name,
				input.Echo(word.value), word.example)
		}
	}
	c := s.Credentials
	if c == nil {
		return
	}
	path += "/credentials"
	if !accessKeyID.MatchString(c.AccessKeyID) {
		problems.Add(path+"/access_key_id", input.CodeTextInvalid,
			"access key id is not 16 or more capitals and digits (not shown: it may be the secret key)")
	}
	c.SecretAccessKey.check(problems, path+"/secret_access_key", headerForm)
	if c.SessionToken != nil {
		c.SessionToken.check(problems, path+"/session_token", headerForm)
	}
}

// setsHeader reports whether auth sets a header, given in lower case.
func (a *Auth) setsHeader(lower string) bool {
	switch {
	case a == nil:
		return false
	case a.APIKey != nil:
		return strings.EqualFold(a.APIKey.Header, lower)
	case a.SigV4 != nil && strings.HasPrefix(lower, "x-amz-"):
		return true
	}
	return lower == "authorization"
}

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
