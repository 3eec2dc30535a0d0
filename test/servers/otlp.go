package servers

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector receives traces as OTLP over HTTP.
type Collector struct {
	*httptest.Server

	mu       sync.Mutex
	raw      bytes.Buffer
	spans    []CollectedSpan
	status   int
	requests int
	header   http.Header
	hanging  chan struct{} // nil while it responds
}

// CollectedSpan is a span with the name of its node.
type CollectedSpan struct {
	*tracepb.Span
	Node string
}

// Attribute returns an attribute as text, or "".
func (s CollectedSpan) Attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			if text := a.Value.GetStringValue(); text != "" {
				return text
			}
			return fmt.Sprint(a.Value.GetIntValue())
		}
	}
	return ""
}

// LinksBySpan returns the reasons of the span's links, by trace and span in hexadecimal.
func (s CollectedSpan) LinksBySpan() map[string]string {
	all := map[string]string{}
	for _, link := range s.Links {
		for _, a := range link.Attributes {
			if a.Key == "carillon.link" {
				all[hex.EncodeToString(link.TraceId)+"-"+hex.EncodeToString(link.SpanId)] = a.Value.GetStringValue()
			}
		}
	}
	return all
}

// NewCollector starts a collector that ends with the test.
func NewCollector(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{status: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() {
		c.Hang(false)
		c.Close()
	})
	return c
}

// Hang makes it accept requests without responses, or respond to all again.
func (c *Collector) Hang(hangs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hanging != nil {
		close(c.hanging)
		c.hanging = nil
	}
	if hangs {
		c.hanging = make(chan struct{})
	}
}

// Respond sets the status of its responses. Spans count as received only with 200.
func (c *Collector) Respond(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Spans returns all received spans.
func (c *Collector) Spans() []CollectedSpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]CollectedSpan(nil), c.spans...)
}

// Requests returns the number of requests, and the header of the last one.
func (c *Collector) Requests() (int, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests, c.header
}

// Holds reports whether any request contained a text.
func (c *Collector) Holds(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.raw.Bytes(), []byte(text))
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests++
	c.header = r.Header.Clone()
	status, hanging := c.status, c.hanging
	c.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-r.Context().Done():
			return
		}
	}
	if r.URL.Path != "/v1/traces" || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not OTLP over HTTP", http.StatusBadRequest)
		return
	}
	body, err := read(r)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if status == http.StatusOK {
		c.keep(body, &data)
	}
	w.WriteHeader(status)
}

func read(r *http.Request) ([]byte, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unpacked
	}
	return io.ReadAll(body)
}

func (c *Collector) keep(body []byte, data *tracepb.TracesData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	for _, of := range data.ResourceSpans {
		node := CollectedSpan{Span: &tracepb.Span{Attributes: of.Resource.Attributes}}.Attribute("service.instance.id")
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, CollectedSpan{span, node})
			}
		}
	}
}
