package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Bounds of what a token endpoint says.
const (
	mostToken        = 16 << 10           // bytes; servers take no longer headers
	defaultTokenLife = 5 * time.Minute    // of a token without expires_in
	mostTokenLife    = 7 * 24 * time.Hour // a longer one is asked for again after this
	mostCode         = 64                 // bytes of an error code
	mostDescription  = 256                // bytes of an error description
)

// tokenResponse is what a token endpoint responds (RFC 6749, sections 5.1 and 5.2).
type tokenResponse struct {
	AccessToken string        `json:"access_token"`
	TokenType   string        `json:"token_type"`
	ExpiresIn   secondsOrText `json:"expires_in"`
	Error       string        `json:"error"`
	Description string        `json:"error_description"`
}

// secondsOrText is a number of seconds, which some servers write as a text; nil: it is not given.
type secondsOrText struct{ seconds *float64 }

func (s *secondsOrText) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	n, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err != nil || n < 0 || n != n {
		return errors.New("expires_in is not a number of seconds")
	}
	s.seconds = &n
	return nil
}

// life returns for how long a token is valid.
func (s secondsOrText) life() time.Duration {
	if s.seconds == nil {
		return defaultTokenLife
	}
	return time.Duration(min(*s.seconds, mostTokenLife.Seconds())) * time.Second
}

// read returns the token in a response, which was asked for at a time. clean removes the credentials of the client from what
// the endpoint says.
func (c oauth2Client) read(got Response, askedAt time.Time, clean attempt.Redaction) (*token, error) {
	var said tokenResponse
	wrong := json.Unmarshal(got.Body, &said)
	problem := ""
	switch {
	case got.Status >= 300 && got.Status <= 399:
		problem = "a redirect, which is not followed; use the URL that it leads to"
	case said.Error != "":
		problem = shown(said.Error, mostCode)
		if said.Description != "" {
			problem += " (" + shown(said.Description, mostDescription) + ")"
		}
	case got.Status != http.StatusOK:
		problem = "no OAuth error code"
	case got.More:
		problem = "a body of more than 64 KiB"
	case wrong != nil:
		problem = "a body that is not JSON with a token"
	case said.AccessToken == "":
		problem = "no access_token"
	case len(said.AccessToken) > mostToken || !httpguts.ValidHeaderFieldValue(said.AccessToken):
		problem = "an access_token that is longer than 16 KiB or cannot be sent in a header"
	case said.TokenType != "" && !strings.EqualFold(said.TokenType, "bearer"):
		problem = "a token of the type " + shown(said.TokenType, mostCode) + ", but only bearer tokens can be sent"
	default:
		return newToken(said.AccessToken, askedAt, said.ExpiresIn.life()), nil
	}
	return nil, &TokenError{
		Failure: attempt.Failure{
			Class: run.ClassOAuth2, RetryAfter: retryAfter(got.header, time.Now()),
			Err: fmt.Errorf("token endpoint %s responded with status %d: %s", c.endpoint, got.Status, attempt.Redact(clean.Clean(problem))),
		},
		// RFC 6749, section 5.2: invalid_client comes with the status 401 or 400.
		refused: got.Status == http.StatusUnauthorized || said.Error == "invalid_client",
	}
}

// shown returns the beginning of a text of a token endpoint, without what is not visible ASCII.
func shown(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), most)]
}
