package attempt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// mostError bounds the error text of an outcome, in bytes.
const mostError = 1024

// Failed returns the outcome of an attempt that failed.
func Failed(class run.Class, message string) run.Outcome {
	return Ended(run.Failed, class, message)
}

// FailedAt is Failed with the addresses that the message leaves out.
func FailedAt(class run.Class, message string, addresses []string) run.Outcome {
	outcome := Failed(class, message)
	if len(addresses) > 0 {
		outcome.Response = &run.Response{Addresses: addresses}
	}
	return outcome
}

// AddressesOf returns the addresses that the error of an outcome leaves out.
func AddressesOf(o run.Outcome) []string {
	if o.Response == nil {
		return nil
	}
	return o.Response.Addresses
}

// Ended returns the outcome of an attempt. It cuts a message that is too long.
func Ended(state run.State, class run.Class, message string) run.Outcome {
	if len(message) > mostError {
		message = strings.ToValidUTF8(message[:mostError], "")
	}
	return run.Outcome{State: state, Class: class, Error: message}
}

// NotAttempted returns the outcome of an attempt whose request could not be built.
func NotAttempted(err error) run.Outcome {
	outcome := Failed(run.ClassOther, err.Error())
	var template *target.TemplateError
	var failure *Failure
	switch {
	case errors.As(err, &template):
		outcome.Class = run.ClassTemplate
	case errors.As(err, &failure):
		outcome = FailedAt(failure.Class, err.Error(), append(failure.Addresses, leadsTo(err)...))
		outcome.RetryAfter = failure.RetryAfter
	}
	outcome.NotSent = true
	return outcome
}

// NotSent is NotAttempted, unless ctx, which is the context of the attempt without its timeout, was cancelled.
func NotSent(ctx context.Context, err error) run.Outcome {
	outcome := NotAttempted(err)
	if ctx.Err() != nil {
		outcome = Ended(run.Cancelled, run.ClassCancelled, "the attempt was cancelled")
		outcome.NotSent = true
	}
	return outcome
}

// Failure is an error that determines the class of its attempt.
type Failure struct {
	Class run.Class
	Err   error
	// RetryAfter is the wait that the attempt asks for; nil: none.
	RetryAfter *time.Duration
	// Addresses are the addresses that the error leaves out.
	Addresses []string
}

// Error is that of Err.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// DeniedError is the reason why egress to a host is denied.
type DeniedError struct {
	host, Why string
	address   string // that a name led to and that is not part of host; empty: none
}

// Error names the host and the reason.
func (e *DeniedError) Error() string { return "egress to " + e.host + " is denied: " + e.Why }

// Denied returns the error for a host to which egress is denied.
func Denied(host, why string) error {
	return &Failure{Class: run.ClassEgressDenied, Err: &DeniedError{host: host, Why: why}}
}

// ByName returns the error of a connection to a host. If egress is denied to an address of the host, it names only the
// host.
func ByName(err error, host string) error {
	var refused *DeniedError
	if _, literal := netip.ParseAddr(host); literal == nil || !errors.As(err, &refused) || refused.host == host {
		return err
	}
	return &Failure{Class: run.ClassEgressDenied,
		Err: &DeniedError{host: "an address of " + host, Why: refused.Why, address: refused.host}}
}

// leadsTo returns the denied address that the error leaves out.
func leadsTo(err error) []string {
	if refused, is := errors.AsType[*DeniedError](err); is && refused.address != "" {
		return []string{refused.address}
	}
	return nil
}

// OutOfBounds returns the error for a target outside the bounds of the app; nil if err is nil.
func OutOfBounds(err error) error {
	var problems input.Problems
	switch {
	case err == nil:
		return nil
	case errors.As(err, &problems):
		texts := make([]string, len(problems))
		for i, problem := range problems {
			texts[i] = problem.Message
		}
		err = errors.New(strings.Join(texts, "; "))
	}
	return &Failure{Class: run.ClassBounds, Err: err}
}

// BadSecret returns the error for a secret that cannot be used, which is shown after its class. err must not contain the
// secret.
func BadSecret(field string, err error) error {
	class := run.ClassSecret
	if known, is := errors.AsType[*Failure](err); is {
		class, err = known.Class, known.Err
	}
	return &Failure{Class: class, Err: fmt.Errorf("%s: %w", field, err)}
}

// Classify turns the error of a request into an outcome. outer is the context of the attempt without its timeout,
// bounded the one with its timeout.
func Classify(outer, bounded context.Context, err error, timeout input.Duration) run.Outcome {
	if outer.Err() != nil {
		return Ended(run.Cancelled, run.ClassCancelled, "the attempt was cancelled")
	}
	class := classOf(err)
	if bounded.Err() != nil && class != run.ClassConnectTimeout {
		return Ended(run.TimedOut, run.ClassTimeout, fmt.Sprintf("no complete response within %s", timeout))
	}
	// The outer *url.Error repeats the URL, and its query may contain a credential.
	var inURL *url.Error
	var own netip.Addr // that the URL itself names
	if errors.As(err, &inURL) {
		err = inURL.Err
		if u, wrong := url.Parse(inURL.URL); wrong == nil {
			own, _ = netip.ParseAddr(u.Hostname())
		}
	}
	text, addresses := target.HideAddresses(err.Error(), own)
	return FailedAt(class, text, append(addresses, leadsTo(err)...))
}

// classOf returns the class of a request's error. net/http has no types for many of its errors, so this also checks
// their texts.
func classOf(err error) run.Class {
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
	}
	var failure *Failure
	var dns *net.DNSError
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &failure):
		return failure.Class
	case errors.As(err, &dns):
		return run.ClassDNS
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &unknown),
		says("tls: ", "server gave HTTP response to HTTPS client"):
		return run.ClassTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return run.ClassConnectRefused
	case errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		return run.ClassConnectTimeout
	case says("response headers exceeded", "header list larger"):
		return run.ClassHeaderTooLarge
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		says("server closed idle connection", "stream error", "GOAWAY", "http2: client conn",
			"after connection loss"): // the transport would have repeated the request, whose body cannot be read again
		return run.ClassReset
	case errors.Is(err, context.DeadlineExceeded):
		return run.ClassTimeout
	case says("malformed", "1xx informational", "bad Content-Length", "transfer encoding", "invalid",
		"transport connection broken"):
		return run.ClassProtocol
	}
	return run.ClassOther
}
