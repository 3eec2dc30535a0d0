package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-resty/resty/v2"
)

// DefaultRetryFor is how long a request is tried again. It suits a person who waits for the response; give programs
// longer than a node takes to restart.
const DefaultRetryFor = 2 * time.Second

// The wait before another try doubles from the first to the longest. Each is random between half of it and all of it,
// so that clients which one restart has cut off do not come back at once.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 2 * time.Second
)

// try calls once until its result is final: a success, a failure that another try cannot mend or could make worse, or
// the last failure before retryFor is over.
func try(
	ctx context.Context, retryFor time.Duration, method string, cond Condition, once func() (*resty.Response, error),
) (*resty.Response, error) {
	window, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	var doubtful *resty.Response // a response that does not tell whether the write was done
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		response, err := once()
		switch {
		case err == nil && doubtful != nil && changedMeanwhile(response.StatusCode()):
			return doubtful, nil // perhaps by this very request, so a conflict with another client would be an invention
		case ctx.Err() != nil || !retryable(response, err, method, cond):
			return response, err
		}
		pause := wait/2 + rand.N(wait/2)
		if err == nil {
			pause = max(pause, retryAfter(response))
			if method != http.MethodGet && response.StatusCode() != http.StatusTooManyRequests {
				doubtful = response
			}
		}
		if pause > retryFor {
			return response, err // the server asks for more than there is
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-window.Done():
			timer.Stop()
			return response, cmp.Or(ctx.Err(), err)
		}
	}
}

// changedMeanwhile reports whether a status refuses a write because the object is not what the write expects.
func changedMeanwhile(status int) bool {
	return status == http.StatusPreconditionFailed || status == http.StatusNotFound
}

// retryable permits another try if it is harmless: the request never reached a server, was refused for its rate, only
// reads, or is a write that a server without its database refused and that cannot be done twice.
// A write whose response was lost is not tried again: it may have succeeded.
func retryable(r *resty.Response, err error, method string, cond Condition) bool {
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return true
		}
		var certificate *tls.CertificateVerificationError
		var network net.Error
		late := errors.As(err, &network) && network.Timeout() // it would take as long again
		return r != nil && method == http.MethodGet && !late && !errors.As(err, &certificate)
	}
	switch status := r.StatusCode(); status {
	case http.StatusTooManyRequests:
		return true // it was refused before anything was done
	case http.StatusServiceUnavailable:
		once := []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete}
		return cond != (Condition{}) || slices.Contains(once, method)
	default:
		return method == http.MethodGet && (status == http.StatusBadGateway || status == http.StatusGatewayTimeout)
	}
}

// retryAfter returns how long a response asks to wait, 0 if it does not say.
func retryAfter(r *resty.Response) time.Duration {
	text := r.Header().Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(min(seconds, int(time.Hour/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	now, errNow := http.ParseTime(r.Header().Get("Date")) // the clock that set the time
	if err != nil || errNow != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}
