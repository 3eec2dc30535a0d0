package tracing

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

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
