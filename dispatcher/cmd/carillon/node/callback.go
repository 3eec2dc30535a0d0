package node

import (
	"fmt"
	"net/url"
	"strings"
)

// callbackFlag is where targets call back that finish their work later.
type callbackFlag struct {
	CallbackURL string `env:"CARILLON_CALLBACK_URL" placeholder:"URL" help:"URL of the HTTP API as targets reach it, such as https://carillon.example.com. Jobs with callback need it."`
}

// check refuses what is not the URL of an API.
func (f callbackFlag) check() error {
	if f.CallbackURL == "" {
		return nil
	}
	u, err := url.Parse(f.CallbackURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("--callback-url: %q is not a URL such as https://carillon.example.com, without user, query and fragment",
			f.CallbackURL)
	}
	return nil
}

// callbackURL returns the URL without a slash at its end.
func (f callbackFlag) callbackURL() string { return strings.TrimRight(f.CallbackURL, "/") }
