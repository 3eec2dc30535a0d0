package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/carillon-dev/carillon/dispatcher/oidc"
)

// oidcFlags let callers come with tokens of an OpenID Connect issuer in place of stored ones.
type oidcFlags struct {
	OIDCIssuer   string `name:"oidc-issuer" env:"CARILLON_OIDC_ISSUER" placeholder:"URL" help:"OpenID Connect issuer whose JSON Web Tokens the API accepts, such as https://token.actions.githubusercontent.com. Needs --oidc-audience and --oidc-claims."`
	OIDCAudience string `name:"oidc-audience" env:"CARILLON_OIDC_AUDIENCE" placeholder:"TEXT" help:"Audience that the tokens must be for. Choose one of your own, such as the URL of the API."`
	OIDCClaims   string `name:"oidc-claims" env:"CARILLON_OIDC_CLAIMS" placeholder:"FILE" help:"JSON file with the rules that map claims to scopes and apps."`
}

// issuer returns the issuer; nil without one. Its errors name the flags.
func (f oidcFlags) issuer(log *slog.Logger) (*oidc.Issuer, error) {
	if f == (oidcFlags{}) {
		return nil, nil
	}
	if f.OIDCIssuer == "" || f.OIDCAudience == "" || f.OIDCClaims == "" {
		return nil, errors.New("--oidc-issuer, --oidc-audience and --oidc-claims go together; one of them is missing")
	}
	text, err := os.ReadFile(f.OIDCClaims)
	if err != nil {
		return nil, fmt.Errorf("--oidc-claims (CARILLON_OIDC_CLAIMS): %w", err)
	}
	rules, err := oidc.ParseRules(text)
	if err != nil {
		return nil, fmt.Errorf("--oidc-claims (CARILLON_OIDC_CLAIMS): %s: %w", f.OIDCClaims, err)
	}
	issuer, err := oidc.New(oidc.Options{Issuer: f.OIDCIssuer, Audience: f.OIDCAudience, Rules: rules, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer (CARILLON_OIDC_ISSUER): %w", err)
	}
	return issuer, nil
}
