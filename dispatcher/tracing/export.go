package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

// client sends spans as OTLP over HTTP. OpenTelemetry's own would bring gRPC with it, 2.5 MB that nothing here uses.
type client struct {
	*settings
	http *http.Client
}

func newClient(s *settings) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	transport.MaxConnsPerHost = 1
	return &client{s, &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the headers are meant for the endpoint alone
	}}}
}

// Start does nothing: a connection is made with the first spans.
func (*client) Start(context.Context) error { return nil }

// Stop closes the connection.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// statusError says that the collector did not take spans.
type statusError int

// Error names the status. What the collector says may repeat what it was sent, with its headers.
func (e statusError) Error() string {
	return fmt.Sprintf("the collector responded with status %d", int(e))
}

// UploadTraces sends spans. While the collector cannot be reached or is overloaded, it tries again until ctx ends.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // on the wire the same as an ExportTraceServiceRequest
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if c.gzip {
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		if _, err := writer.Write(body); err != nil {
			return fmt.Errorf("compress spans: %w", err)
		}
		if err := writer.Close(); err != nil {
			return fmt.Errorf("compress spans: %w", err)
		}
		body = packed.Bytes()
	}
	return backoff.Pauses{First: 500 * time.Millisecond, Most: 5 * time.Second}.Repeat(ctx, func() error { return c.send(ctx, body) },
		func(f backoff.Failure) bool {
			var status statusError
			return !errors.As(f.Err, &status) || slices.Contains([]int{429, 502, 503, 504}, int(status))
		})
}

// send makes one request. Its error does not have the URL, in which there may be a secret.
func (c *client) send(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the endpoint is no URL that can be called")
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	for name, value := range c.headers {
		request.Header.Set(name, value)
	}
	response, err := c.http.Do(request)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if err != nil {
		return fmt.Errorf("call the collector: %w", err)
	}
	defer response.Body.Close()
	const most = 64 << 10
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, most)) // so that the connection is kept
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return statusError(response.StatusCode)
	}
	return nil
}
