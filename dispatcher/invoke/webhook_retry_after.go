package invoke

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter returns how long a response asks to wait (RFC 9110, section 10.2.3): seconds, or a date
// that counts from the response's own, for the two clocks may differ. It is nil for whatever is neither,
// and 0 for a date that is past.
func retryAfter(header http.Header, now time.Time) *time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	// No policy waits for longer than a day; larger numbers would overflow.
	const most = 1_000_000_000
	if text != "" && strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds > most {
			seconds = most
		}
		wait := time.Duration(seconds) * time.Second
		return &wait
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return nil
	}
	if sent, err := http.ParseTime(header.Get("Date")); err == nil {
		now = sent
	}
	wait := max(0, at.Sub(now))
	return &wait
}
