package api

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
)

// As returns a transport that serves requests in this process as a token, which the caller has just read from the store, on
// behalf of from: address, certificate and request id are those of from. The API checks scopes, bounds and rates as it does for
// a bearer of the token.
func (a *API) As(from *http.Request, token access.APIToken) http.RoundTripper {
	return inProcess{api: a, from: from, token: &token}
}

// Bearer is As for requests that bear a token themselves.
func (a *API) Bearer(from *http.Request) http.RoundTripper { return inProcess{api: a, from: from} }

// Admit is gate.Visit for a request that the API does not serve itself, and AdmitUnknown and AdmitBody are VisitUnknown and VisitBody.
func (a *API) Admit(hr *http.Request, now time.Time) time.Duration { return a.gate.Visit(hr, now) }

// AdmitUnknown counts a request that shows something unknown where a secret belongs; see gate.VisitUnknown.
func (a *API) AdmitUnknown(hr *http.Request, now time.Time) time.Duration {
	return a.gate.VisitUnknown(hr, now)
}

// AdmitBody waits for a place for a body; see gate.VisitBody.
func (a *API) AdmitBody(hr *http.Request, token access.APIToken) (leave func(), wait time.Duration) {
	return a.gate.VisitBody(hr, token)
}

// inProcess is a transport into the API of this process.
type inProcess struct {
	api   *API
	from  *http.Request
	token *access.APIToken // nil: requests bear their own
}

// RoundTrip serves a request.
func (p inProcess) RoundTrip(sent *http.Request) (*http.Response, error) {
	ctx := sent.Context()
	if p.token != nil {
		ctx = gate.As(ctx, *p.token)
	}
	r := sent.Clone(ctx)
	if p.token != nil {
		r.Header.Del("Authorization")
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	r.URL = &url.URL{Path: sent.URL.Path, RawPath: sent.URL.RawPath, RawQuery: sent.URL.RawQuery}
	r.RequestURI = r.URL.RequestURI()
	r.RemoteAddr, r.TLS = p.from.RemoteAddr, p.from.TLS
	for _, header := range []string{"X-Forwarded-For", "X-Request-Id"} {
		if values := p.from.Header.Values(header); len(values) > 0 {
			r.Header[header] = values
		}
	}
	w := &buffer{header: http.Header{}, status: http.StatusOK}
	p.api.ServeHTTP(w, r)
	body := bytes.NewReader(w.body.Bytes())
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(body), ContentLength: int64(body.Len()), Request: sent,
	}, ctx.Err()
}

// buffer keeps a response.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the headers.
func (b *buffer) Header() http.Header { return b.header }

// WriteHeader keeps the status.
func (b *buffer) WriteHeader(status int) { b.status = status }

// Write keeps a part of the body.
func (b *buffer) Write(part []byte) (int, error) { return b.body.Write(part) }
