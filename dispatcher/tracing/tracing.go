// Package tracing records the attempts of runs as spans of OpenTelemetry and sends them to a collector.
//
// A run is a trace, and each of its attempts a span of kind client, whose ids follow from those of the run; see
// run.TraceOf. An attempt has no parent, because the cause of a run has often ended long before: the span has links to
// it instead. A span holds nothing that can be a secret: no URL, no text of an error, no part of a request or response.
//
//	tracing.go  reads the variables OTEL_
//	span.go     makes the span of an attempt
//	export.go   holds spans until they are sent as OTLP over HTTP, and drops those that have no room
//
// A slow or unreachable collector delays no attempt: a span waits in a bounded queue or is dropped and counted.
package tracing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Options describe the source of the spans.
type Options struct {
	// Node is the name of the node and Version that of the program.
	Node, Version string
	Logger        *slog.Logger
	// Metrics gets the counter of spans.
	Metrics prometheus.Registerer
	// LookUp returns a variable of the environment. The SDK reads the sampler, limits and resource of os.Getenv by itself.
	LookUp func(string) string
}

// Tracer makes the spans of attempts. It is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	queue    *queue
	log      *slog.Logger
}

// New returns a Tracer configured by the environment; nil: the environment names no collector, or turns traces off. It
// starts nothing; call Run. It returns the errors of all variables together.
func New(ctx context.Context, o Options) (*Tracer, error) {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_spans_total",
		Help: "Spans of attempts by result: exported, dropped because the queue was full, or failed because the collector did not take them.",
	}, []string{"result"})
	o.Metrics.MustRegister(spans)
	for _, result := range []string{resultExported, resultDropped, resultFailed} {
		spans.WithLabelValues(result)
	}
	settings, err := read(o.LookUp)
	if err != nil || settings == nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("carillon"), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(o.Node)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracer{log: o.Logger}
	t.queue = &queue{
		exporter: otlptrace.NewUnstarted(newClient(settings)), waiting: make(chan sdk.ReadOnlySpan, settings.queue), spans: spans,
		batch: settings.batch, delay: settings.delay, timeout: settings.timeout, log: o.Logger,
	}
	t.provider = sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithIDGenerator(ids{}), sdk.WithSpanProcessor(t.queue))
	t.tracer = t.provider.Tracer("github.com/carillon-dev/carillon", trace.WithInstrumentationVersion(o.Version),
		trace.WithSchemaURL(semconv.SchemaURL))
	return t, nil
}

// Run sends spans until ctx ends, and then the remaining ones, for a second at most.
func (t *Tracer) Run(ctx context.Context) { t.queue.run(ctx) }

// settings are the environment's settings of the export.
type settings struct {
	endpoint *url.URL
	headers  map[string]string
	gzip     bool
	tls      *tls.Config
	// timeout bounds the export of a batch with all its tries.
	timeout, delay time.Duration
	queue, batch   int
}

// reader reads variables and collects their errors. Its texts never repeat the value of a header, which may be a
// secret, nor an endpoint.
type reader struct {
	lookUp   func(string) string
	problems []error
}

// read reads the variables of OpenTelemetry's specification; nil: traces are off.
func read(lookUp func(string) string) (*settings, error) {
	r := &reader{lookUp: lookUp}
	base, own := lookUp("OTEL_EXPORTER_OTLP_ENDPOINT"), lookUp("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	exporter := lookUp("OTEL_TRACES_EXPORTER")
	if base == "" && own == "" || strings.EqualFold(lookUp("OTEL_SDK_DISABLED"), "true") || exporter == "none" {
		return nil, nil
	}
	if exporter != "" && exporter != "otlp" {
		r.wrong("OTEL_TRACES_EXPORTER", "Carillon has no other exporter than otlp; write otlp or none")
	}
	if name, protocol := r.exporter("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		r.wrong(name, "Carillon sends http/protobuf only; write that, and the endpoint of the collector's HTTP receiver, mostly port 4318")
	}
	s := &settings{
		timeout: r.milliseconds("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", r.milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", 10*time.Second)),
		delay:   r.milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5*time.Second),
		queue:   r.count("OTEL_BSP_MAX_QUEUE_SIZE", 2048), batch: r.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
	}
	s.batch = min(s.batch, s.queue)
	if own != "" {
		s.endpoint = r.url("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", own)
	} else if s.endpoint = r.url("OTEL_EXPORTER_OTLP_ENDPOINT", base); s.endpoint != nil {
		s.endpoint = s.endpoint.JoinPath("v1/traces")
	}
	switch name, compression := r.exporter("COMPRESSION"); compression {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		r.wrong(name, "write gzip or none")
	}
	s.headers = r.headers()
	s.tls = r.tls()
	return s, errors.Join(r.problems...)
}

func (r *reader) wrong(name, why string) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", name, why))
}

// exporter returns a variable of the exporter: that of traces or, without one, that of all signals.
func (r *reader) exporter(name string) (variable, value string) {
	if own := "OTEL_EXPORTER_OTLP_TRACES_" + name; r.lookUp(own) != "" {
		return own, r.lookUp(own)
	}
	all := "OTEL_EXPORTER_OTLP_" + name
	return all, r.lookUp(all)
}

func (r *reader) url(name, text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		r.wrong(name, "it is not an absolute URL; write one such as http://localhost:4318")
		return nil
	}
	return u
}

// milliseconds reads a time; 0 and less are refused.
func (r *reader) milliseconds(name string, otherwise time.Duration) time.Duration {
	return time.Duration(r.count(name, int(otherwise.Milliseconds()))) * time.Millisecond
}

func (r *reader) count(name string, otherwise int) int {
	text := r.lookUp(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		r.wrong(name, "it is not a whole number from 1 to 1000000; times are in milliseconds")
		return otherwise
	}
	return n
}

// headers reads key=value,key=value, percent-encoded.
func (r *reader) headers() map[string]string {
	name, text := r.exporter("HEADERS")
	headers := map[string]string{}
	for n, pair := range strings.Split(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !found || key == "" || err != nil {
			r.wrong(name, fmt.Sprintf("header %d is not of the form name=value, percent-encoded", n+1))
			continue
		}
		headers[key] = value
	}
	return headers
}

// tls reads the files of authorities and of a client certificate; nil: the defaults.
func (r *reader) tls() *tls.Config {
	var config tls.Config
	if name, file := r.exporter("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if config.RootCAs = x509.NewCertPool(); err != nil || !config.RootCAs.AppendCertsFromPEM(text) {
			r.wrong(name, fmt.Sprintf("file %s holds no certificate that can be read", file))
		}
	}
	certificateName, certificate := r.exporter("CLIENT_CERTIFICATE")
	if _, key := r.exporter("CLIENT_KEY"); certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			r.wrong(certificateName, "certificate and key cannot be read from their files, or do not belong together")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if config.RootCAs == nil && config.Certificates == nil {
		return nil
	}
	return &config
}
