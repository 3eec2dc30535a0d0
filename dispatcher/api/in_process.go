package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/limit"
)

// asKey is the key of the context under which a request has the token that it is served as. Nothing on the network can set it.
type asKey struct{}

// As returns a transport that serves requests in this process as a token, which the caller has just read from the store, on
// behalf of from: address, certificate and request id are those of from. The API checks scopes, bounds and rates as it does for
// a bearer of the token.
func (a *API) As(from *http.Request, token access.APIToken) http.RoundTripper {
	return inProcess{api: a, from: from, token: &token}
}

// Bearer is As for requests that bear a token themselves.
func (a *API) Bearer(from *http.Request) http.RoundTripper { return inProcess{api: a, from: from} }

// Admit counts a request, which the API does not serve itself, for its address. It returns how long the caller has to wait;
// 0: it may go on.
func (a *API) Admit(hr *http.Request, now time.Time) time.Duration {
	client, _ := a.clientOf(hr)
	return a.limits.addresses.Take(client, a.limits.AddressRequests, now)
}

// AdmitUnknown is Admit for a request that shows something unknown where a secret belongs, such as the cookie of a session that has
// ended: it counts as one without a valid token.
func (a *API) AdmitUnknown(hr *http.Request, now time.Time) time.Duration {
	client, _ := a.clientOf(hr)
	return a.limits.badTokens.Take(client, a.limits.BadTokens, now)
}

// AdmitBody waits for a place for the body of a request that the API does not serve itself, and returns what to call when the
// body is read, or how long the caller has to wait. The body counts for the token that the request comes from, or for its
// address if there is none, as when somebody signs in.
func (a *API) AdmitBody(hr *http.Request, token access.APIToken) (leave func(), wait time.Duration) {
	client, hr := a.clientOf(hr)
	r := &request{Request: hr, id: requestID(hr), client: client, now: clock(), token: token}
	wanted := []limit.Place{a.limits.addressPlace(client)}
	if token.ID != "" {
		wanted = a.limits.placesOf(r)
	}
	leave, err := a.take(r, wanted...)
	if err != nil {
		return nil, placePatience
	}
	return leave, 0
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
		ctx = context.WithValue(ctx, asKey{}, *p.token)
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
