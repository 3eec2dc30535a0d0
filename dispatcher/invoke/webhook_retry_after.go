package invoke

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter returns the wait that a response asks for (RFC 9110, section 10.2.3): a number of
// seconds, or a date. A date counts from the Date header of the response, because the clocks may
// differ; the wait for a past date is 0. Any other value gives nil.
func retryAfter(header http.Header, now time.Time) *time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	// Larger numbers would overflow, and no policy waits for longer than a day anyway.
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
