package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Bounds of the part of a response that is kept.
const (
	mostHeaderValue = 1 << 10 // bytes of one header
	slowResponse    = input.Duration(time.Second)
)

// keptHeaders are the response headers that are kept. They describe the content, the next step and
// the server.
var keptHeaders = []string{
	"Content-Type", "Content-Length", "Content-Encoding", "Location", "Retry-After", "Allow", "Date", "Server", "Via",
	"Traceresponse", "X-Error", "X-Error-Code", "X-Amzn-Errortype", "Cf-Ray", run.HeaderOutcome,
}

// requestIDs are the headers in which servers return the id of a request, in order of preference.
var requestIDs = []string{
	"X-Request-Id", "Request-Id", "X-Amzn-Requestid", "X-Amz-Request-Id", "X-Correlation-Id", "X-Amzn-Trace-Id",
}

// Response is the part of an HTTP response that is read.
type Response struct {
	Status int
	header http.Header
	Body   []byte // at most attempt.MostBody bytes
	More   bool   // the body is longer
}

// judge returns the outcome of a response to a request. bounded, which is outer with the timeout of the
// attempt, bounds matching.
func (h *Webhooks) judge(outer, bounded context.Context, r Request, w *target.Webhook, a Response) run.Outcome {
	if r.fenced && a.superseded() {
		outcome := run.SupersededOutcome()
		outcome.HTTPStatus = a.Status
		return outcome
	}
	outcome := judgeStatus(w, a.Status)
	if outcome.State == run.Succeeded && w.ExpectBody != "" {
		switch matched, err := h.expectations.match(bounded, r.App, w.ExpectBody, a.Body); {
		case err != nil && outer.Err() != nil:
			outcome = attempt.Ended(run.Cancelled, run.ClassCancelled, "the attempt was cancelled")
		case err != nil && bounded.Err() != nil:
			outcome = attempt.Ended(run.TimedOut, run.ClassTimeout, fmt.Sprintf(
				"expect_body could not be matched with the response within the timeout of %s; "+
					"use a simpler expression, or a longer timeout", w.Timeout))
		case matched:
		case a.More:
			outcome = attempt.Failed(run.ClassBodyTooLarge,
				"expect_body does not match the first 64 KiB of the response body, and the rest is not read")
		default:
			outcome = attempt.Failed(run.ClassBody, "expect_body does not match the response body")
		}
	}
	outcome.HTTPStatus = a.Status
	return outcome
}

// superseded reports whether the receiver refused the request as stale. A status of 409 means that only together with
// the mark.
func (a Response) superseded() bool {
	return a.Status == http.StatusConflict &&
		(run.IsSuperseded(a.header.Get(run.HeaderOutcome)) || run.IsSuperseded(run.OutcomeInBody(a.Body)))
}

func judgeStatus(w *target.Webhook, status int) run.Outcome {
	if w.Succeeds(status) {
		return run.Outcome{State: run.Succeeded}
	}
	class := run.ClassProtocol
	switch {
	case status == http.StatusTooManyRequests:
		class = run.ClassRateLimited
	case status >= 200 && status <= 299:
		class = run.ClassHTTP2xx
	case status >= 300 && status <= 399:
		class = run.ClassRedirect
	case status >= 400 && status <= 499:
		class = run.ClassHTTP4xx
	case status >= 500 && status <= 599:
		class = run.ClassHTTP5xx
	}
	return attempt.Failed(class, fmt.Sprintf("the target responded with status %d", status))
}

// keep returns the part of a response that is stored, or nil if it has no useful content. endpoint is the endpoint of a
// group that responded, if any. clean removes secrets.
func keep(o run.Outcome, endpoint string, a Response, phases run.Phases, clean attempt.Redaction) *run.Response {
	id := ""
	for _, name := range requestIDs {
		if id = a.header.Get(name); id != "" {
			break
		}
	}
	if o.State == run.Succeeded && endpoint == "" && len(a.Body) == 0 && id == "" && phases.LastByte < slowResponse {
		return nil
	}
	hidden := func(text string, most int) string {
		if len(text) > most {
			text = text[:most]
		}
		return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	}
	kept := run.Response{
		Endpoint: endpoint, RequestID: hidden(clean.Clean(id), mostHeaderValue), Body: hidden(clean.CleanCut(string(a.Body)), attempt.MostBody),
		BodyTruncated: a.More, Phases: phases, Addresses: attempt.AddressesOf(o),
	}
	for _, name := range keptHeaders {
		if value := a.header.Get(name); value != "" {
			if kept.Headers == nil {
				kept.Headers = map[string]string{}
			}
			kept.Headers[strings.ToLower(name)] = hidden(clean.Clean(value), mostHeaderValue)
		}
	}
	return &kept
}

// retryAfter returns the wait that a response asks for (RFC 9110, section 10.2.3): a number of seconds, or a date. A
// date counts from the Date header of the response, because the clocks may differ; the wait for a past date is 0. Any
// other value gives nil.
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

const (
	// mostExpectations bounds the cache of compiled expressions.
	mostExpectations = 1000
	// quickMatch bounds body times expression for a match at once, which takes a few milliseconds at most. The program
	// of an expression without a repeat count is no larger than its text.
	quickMatch = 1 << 18
	// checkEvery is how many characters are matched between two checks of the deadline: some 2 ms for the largest
	// program.
	checkEvery = 64
)

// expectations matches responses. Expressions are compiled at first use, and the latest are kept.
type expectations struct {
	compiled *cache.Cache[string, *regexp.Regexp]
	// long has a place for each app, for one long match: all other attempts of the app wait for it, and no attempts of
	// other apps.
	long *limit.Places
}

func newExpectations() *expectations {
	return &expectations{compiled: cache.New[string, *regexp.Regexp](mostExpectations), long: limit.NewPlaces()}
}

// match reports whether a body matches an expression of an app. The error is that of ctx, which ends
// a match within milliseconds, or that of an invalid expression, which Validate refuses.
func (e *expectations) match(ctx context.Context, app, text string, body []byte) (bool, error) {
	compiled, err := e.get(text)
	if err != nil {
		return false, err
	}
	_, literal := compiled.LiteralPrefix()
	if literal || len(body)*len(text) <= quickMatch && !strings.Contains(text, "{") {
		return compiled.Match(body), nil
	}
	done, _ := e.long.Take(ctx, limit.Place{Key: app, Most: 1})
	if done == nil {
		return false, ctx.Err()
	}
	defer done()
	r := &interruptible{ctx: ctx, rest: body}
	matched := compiled.MatchReader(r)
	return matched && r.err == nil, r.err
}

// get returns a compiled expression. It compiles without the lock, which all apps share.
func (e *expectations) get(text string) (*regexp.Regexp, error) {
	if compiled, known := e.compiled.Get(text); known {
		return compiled, nil
	}
	compiled, err := target.CompileExpectation(text)
	if err == nil {
		e.compiled.Put(text, compiled)
	}
	return compiled, err
}

// interruptible reads a body and ends early when its context does.
type interruptible struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one match
	rest []byte
	read int
	err  error
}

// ReadRune is that of io.RuneReader.
func (r *interruptible) ReadRune() (char rune, size int, err error) {
	if r.read++; r.read%checkEvery == 0 && r.err == nil {
		r.err = r.ctx.Err()
	}
	if len(r.rest) == 0 || r.err != nil {
		return 0, 0, io.EOF
	}
	char, size = utf8.DecodeRune(r.rest)
	r.rest = r.rest[size:]
	return char, size, nil
}
