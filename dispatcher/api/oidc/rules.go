package oidc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Rule gives scopes to identities with fitting claims.
type Rule struct {
	// Claims are patterns by the names of claims, all of which must fit: * stands for any characters. A list fits if
	// one of its values does.
	Claims map[string]string `json:"claims"`
	// Scopes and Apps are those of the resulting token.
	Scopes []access.Scope `json:"scopes"`
	Apps   []string       `json:"apps"`
}

// Rules are tried in order; the first that fits decides.
type Rules []Rule

// mostRules bounds the work of a request.
const mostRules = 1000

// ParseRules reads the file of --oidc-claims: {"rules": [{"claims": {...}, "scopes": [...], "apps": [...]}]}. The error
// is Problems if the file is JSON.
func ParseRules(text []byte) (Rules, error) {
	var file struct {
		Rules Rules `json:"rules"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf(`the file is not {"rules": [{"claims": {...}, "scopes": [...], "apps": [...]}]}: %w`, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one JSON value")
	}
	return file.Rules, file.Rules.validate()
}

func (r Rules) validate() error {
	var problems input.Problems
	switch {
	case len(r) == 0:
		problems.Add("/rules", input.CodeRequired, "there are no rules, so nobody would be permitted anything; give at least one")
	case len(r) > mostRules:
		problems.Add("/rules", input.CodeTooMany, "there are %d rules; the maximum is %d", len(r), mostRules)
		return problems
	}
	for i, rule := range r {
		at := fmt.Sprintf("/rules/%d", i)
		if !slices.ContainsFunc(slices.Collect(maps.Values(rule.Claims)), func(p string) bool { return strings.Trim(p, "*") != "" }) {
			problems.Add(at+"/claims", input.CodeRequired, "no claim has a pattern but *, so the rule would fit everybody who has "+
				"a token of the issuer; say whose, such as by sub")
		}
		problems.AddError(at, access.APIToken{Name: "rule", TokenSpec: access.TokenSpec{Scopes: rule.Scopes, Apps: rule.Apps}}.Validate())
	}
	return problems.Err()
}

func (r Rules) find(claims map[string]any) (Rule, bool) {
	for _, rule := range r {
		if rule.fits(claims) {
			return rule, true
		}
	}
	return Rule{}, false
}

func (r Rule) fits(claims map[string]any) bool {
	for name, pattern := range r.Claims {
		if value, is := claims[name]; !is || !fits(pattern, value) {
			return false
		}
	}
	return true
}

// fits reports whether a claim, or one of the values of a list, fits a pattern. Objects do not fit.
func fits(pattern string, claim any) bool {
	switch value := claim.(type) {
	case string:
		return matches(pattern, value)
	case bool, json.Number:
		return matches(pattern, fmt.Sprint(value))
	case []any:
		for _, one := range value {
			if _, nested := one.([]any); !nested && fits(pattern, one) {
				return true
			}
		}
	}
	return false
}

// matches reports whether text fits a pattern, in which * stands for any characters. For each part between two of them
// the first place is as good as any later one.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return text == pattern
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

const (
	// leeway is how far the clocks of issuer and node may differ.
	leeway = time.Minute
	// maxSubject bounds the name of an identity in logs and in the audit log.
	maxSubject = 512 // bytes
	// maxSeconds is the latest instant that can be written.
	maxSeconds = 1e11
)

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

// check checks the audience and the times of a JWT, and returns when it expires.
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

// isFor reports whether an audience, which is a text or a list of them, holds the wanted one.
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
