package oidc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"
)

const (
	// leeway is how far the clocks of issuer and node may differ.
	leeway = time.Minute
	// maxSubject bounds the name of an identity in logs and in the audit log.
	maxSubject = 512 // bytes
	// maxSeconds is an instant that can be written.
	maxSeconds = 1e11
)

// parseClaims reads the payload of a JWT.
func parseClaims(payload []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var claims map[string]any
	if err := decoder.Decode(&claims); err != nil || claims == nil {
		return nil, bad("its claims are not a JSON object")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, bad("its claims are not a JSON object")
	}
	return claims, nil
}

// check checks for whom and for what time a JWT is, and returns when it expires.
func (i *Issuer) check(claims map[string]any, now time.Time) (expires time.Time, err error) {
	if claims["iss"] != i.url {
		return expires, bad("it is of another issuer")
	}
	if !isFor(claims["aud"], i.audience) {
		return expires, bad("its audience is another")
	}
	expires, given, err := instant(claims, "exp")
	switch {
	case err != nil:
		return expires, err
	case !given:
		return expires, bad("it has no expiry")
	case !now.Before(expires.Add(leeway)):
		return expires, bad("it has expired")
	}
	for name, why := range map[string]string{"nbf": "it is not valid yet", "iat": "it is from the future"} {
		switch at, given, err := instant(claims, name); {
		case err != nil:
			return expires, err
		case given && now.Add(leeway).Before(at):
			return expires, bad(why)
		}
	}
	return expires, nil
}

// isFor tells whether an audience, which is a text or a list of them, holds the wanted one.
func isFor(audience any, wanted string) bool {
	if list, is := audience.([]any); is {
		return slices.Contains(list, any(wanted))
	}
	return audience == wanted
}

// instant reads a claim that counts seconds since 1970.
func instant(claims map[string]any, name string) (at time.Time, given bool, err error) {
	value, given := claims[name]
	if !given {
		return at, false, nil
	}
	number, is := value.(json.Number)
	if !is {
		return at, true, bad(name + " is not a number of seconds")
	}
	seconds, err := number.Float64()
	if err != nil || seconds < 0 || seconds > maxSeconds {
		return at, true, bad(name + " is not a number of seconds")
	}
	return time.UnixMilli(int64(seconds * 1000)).UTC(), true, nil
}
