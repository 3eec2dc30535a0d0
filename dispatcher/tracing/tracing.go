// Package tracing records the attempts of runs as spans of OpenTelemetry and sends them to a collector.
//
// A run is a trace, and each of its attempts a span of kind client, whose ids follow from those of the run; see
// run.TraceOf. An attempt has no parent, because the cause of a run has often ended long before: the span has links to
// it instead. A span holds nothing that can be a secret: no URL, no text of an error, no part of a request or response.
//
//	tracing.go  reads the variables OTEL_
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
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
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

// Begin begins the span of an attempt at now. It returns the sampling of the trace, and a function that ends the span;
// nil: the trace is not recorded.
func (t *Tracer) Begin(ctx context.Context, call target.Call, now time.Time) (run.Sampling, func(run.Outcome)) {
	name, attributes := aboutTarget(call)
	_, span := t.tracer.Start(context.WithValue(ctx, idsKey{}, &call), name, trace.WithNewRoot(), trace.WithTimestamp(now),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links(call)...),
		trace.WithAttributes(append(attributes, aboutRun(call)...)...))
	if !span.SpanContext().IsSampled() {
		return run.NotSampled, nil
	}
	return run.Sampled, func(o run.Outcome) {
		end(span, call, o)
	}
}

// end ends a span with the outcome of its attempt. It leaves out error texts, which may repeat a target's response.
func end(span trace.Span, call target.Call, o run.Outcome) {
	span.SetAttributes(attribute.String("carillon.state", string(o.State)))
	if o.HTTPStatus != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(o.HTTPStatus))
	}
	if o.Class != "" {
		span.SetAttributes(attribute.String("carillon.class", string(o.Class)), semconv.ErrorTypeKey.String(string(o.Class)))
	}
	if o.Response != nil && o.Response.Endpoint != "" {
		span.SetAttributes(aboutEndpoint(call, o.Response.Endpoint)...)
	}
	switch o.State {
	case run.Succeeded, run.WaitingCallback, run.Superseded:
	default:
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(o.EndedAt))
}

// aboutRun returns the attributes that identify the attempt.
func aboutRun(call target.Call) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		attribute.String("carillon.app", call.App), attribute.String("carillon.job", call.Job),
		attribute.String("carillon.run", call.Key.String()), attribute.String("carillon.kind", string(call.Key.Kind)),
		attribute.Int("carillon.attempt", call.Attempt),
		attribute.String("carillon.scheduled_at", input.FormatInstant(call.Key.ScheduledAt)),
	}
	if call.Trigger != "" {
		attributes = append(attributes, attribute.String("carillon.trigger", call.Trigger))
	}
	return attributes
}

// aboutTarget returns the name of a span, and its target's attributes. They have few values: the host, not the URL.
func aboutTarget(call target.Call) (name string, attributes []attribute.KeyValue) {
	switch target := call.Target; {
	case target.Webhook != nil:
		host, _ := target.Host()
		return target.Webhook.Method, append(aboutRequest(target.Webhook.Method, call.Attempt), aboutHost(host, target.Webhook.URL)...)
	case target.Alert != nil && target.Alert.Webhook != nil:
		w := target.Alert.Webhook
		host, _ := target.Host()
		return w.Method, append(aboutRequest(w.Method, call.Attempt), aboutHost(host, w.URL)...)
	case target.Group != nil:
		return target.Group.Method, append(aboutRequest(target.Group.Method, call.Attempt), attribute.String("carillon.group", target.Group.Name))
	case target.Lambda != nil:
		function := target.Lambda.FunctionName()
		attributes = append(attributes, semconv.FaaSInvokedName(function), semconv.FaaSInvokedProviderAWS)
		if region := target.Lambda.FunctionRegion(); region != "" {
			attributes = append(attributes, semconv.FaaSInvokedRegion(region))
		}
		if call.Key.Kind == run.KindSchedule {
			attributes = append(attributes, semconv.FaaSTriggerTimer, semconv.FaaSTime(input.FormatInstant(call.Key.ScheduledAt)))
		}
		return "invoke " + function, attributes
	case target.SQS != nil:
		return aboutMessage(semconv.MessagingSystemAWSSQS, target.SQS.QueueARN)
	case target.SNS != nil:
		return aboutMessage(semconv.MessagingSystemAWSSNS, target.SNS.TopicARN)
	case target.Alert != nil && target.Alert.SNS != nil:
		return aboutMessage(semconv.MessagingSystemAWSSNS, target.Alert.SNS.TopicARN)
	}
	return "call", nil
}

func aboutRequest(method string, attempt int) []attribute.KeyValue {
	attributes := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(method)}
	if attempt > 1 {
		attributes = append(attributes, semconv.HTTPRequestResendCount(attempt-1))
	}
	return attributes
}

// aboutHost returns the attributes of a server. address is a URL, or the beginning of one whose end is a template.
func aboutHost(host, address string) []attribute.KeyValue {
	name, text, err := net.SplitHostPort(host)
	if err != nil {
		name, text = strings.Trim(host, "[]"), "443"
		if scheme, _, _ := strings.Cut(address, ":"); strings.EqualFold(scheme, "http") {
			text = "80"
		}
	}
	port, _ := strconv.Atoi(text) // a port that is not a number is refused in the declaration
	return []attribute.KeyValue{semconv.ServerAddress(name), semconv.ServerPort(port)}
}

// aboutEndpoint returns the attributes of the group's endpoint that an attempt called.
func aboutEndpoint(call target.Call, id string) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String("carillon.endpoint", id)}
	if call.Group == nil {
		return attributes
	}
	for _, endpoint := range call.Group.Live {
		if u, err := url.Parse(endpoint.URL); endpoint.ID == id && err == nil {
			return append(attributes, aboutHost(u.Host, endpoint.URL)...)
		}
	}
	return attributes
}

func aboutMessage(system attribute.KeyValue, arn string) (string, []attribute.KeyValue) {
	destination := arn[strings.LastIndexByte(arn, ':')+1:]
	return "send " + destination, []attribute.KeyValue{
		system, semconv.MessagingDestinationName(destination), semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"),
	}
}

// links returns the causes of an attempt: the attempt before, the run that the run follows or reports, and the request
// for the run.
func links(call target.Call) (all []trace.Link) {
	add := func(why string, id run.TraceID, span run.SpanID, sampled bool, more ...attribute.KeyValue) {
		var flags trace.TraceFlags
		all = append(all, trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID(id), SpanID: trace.SpanID(span), TraceFlags: flags.WithSampled(sampled), Remote: true,
			}),
			Attributes: append(more, attribute.String("carillon.link", why)),
		})
	}
	if call.Attempt > 1 {
		add("retry", call.TraceID(), run.SpanOf(call.Installation, call.Key.String(), call.Attempt-1), true)
	}
	if c := call.Cause; c != nil && c.Run != "" {
		why := "follow"
		if c.Alert != "" {
			why = "alert"
		}
		add(why, run.TraceOf(call.Installation, c.Run), run.SpanOf(call.Installation, c.Run, 1), true,
			attribute.String("carillon.run", c.Run))
	}
	if r := call.Requester; r != nil {
		add("request", r.Trace, r.Span, r.Sampled)
	}
	return all
}

// ids gives spans the ids of their attempts, which Begin puts into the context.
type ids struct{}

type idsKey struct{}

// NewIDs returns the ids of an attempt.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	call, _ := ctx.Value(idsKey{}).(*target.Call)
	return trace.TraceID(call.TraceID()), trace.SpanID(call.SpanID())
}

// NewSpanID returns the id of an attempt.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	call, _ := ctx.Value(idsKey{}).(*target.Call)
	return trace.SpanID(call.SpanID())
}
