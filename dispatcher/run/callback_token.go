package run

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// CallbackTokenPrefix begins the tokens of callbacks. No other bearer token begins with it.
const CallbackTokenPrefix = "carillon_cb_"

// CallToken is what a target needs to end an attempt that it accepted.
type CallToken struct {
	// URL is that of the run in the API. /complete, /fail and /heartbeat follow it.
	URL string `json:"url"`
	// Token is the bearer token for these, and for nothing else.
	Token string `json:"token"`
	// Timeout is how long after the acceptance, and after each heartbeat, the callback may come.
	Timeout input.Duration `json:"timeout"`
}

// CallbackToken returns the token of an attempt of the run with an event id. It has the number of the attempt, and a message
// authentication code of both by the key of the installation. Its holder can end this attempt of this run.
func CallbackToken(key []byte, eventID string, attempt int) string {
	number := strconv.Itoa(attempt)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("callback\n" + eventID + "\n" + number))
	return CallbackTokenPrefix + number + "_" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// CallbackAttempt returns the number of the attempt that a token of a callback says it is of; 0: it is no such token. Whether
// the token is valid is for IsCallbackToken to say.
func CallbackAttempt(token string) int {
	rest, is := strings.CutPrefix(token, CallbackTokenPrefix)
	number, _, _ := strings.Cut(rest, "_")
	attempt, err := strconv.Atoi(number)
	if !is || err != nil || attempt < 1 {
		return 0
	}
	return attempt
}

// IsCallbackToken reports whether a token is that of an attempt. How long it takes tells nothing of the right one.
func IsCallbackToken(key []byte, token, eventID string, attempt int) bool {
	return hmac.Equal([]byte(token), []byte(CallbackToken(key, eventID, attempt)))
}
