package dispatcher

import "github.com/carillon-dev/carillon/dispatcher/run"

// TraceID returns the trace of the run.
func (c Call) TraceID() run.TraceID { return run.TraceOf(c.Installation, c.Key.String()) }

// SpanID returns the span of the attempt.
func (c Call) SpanID() run.SpanID { return run.SpanOf(c.Installation, c.Key.String(), c.Attempt) }

// Traceparent returns the W3C trace context of the attempt, for targets that take part in traces; empty: the target of the
// call does not. If the node makes no traces, it says "sampled", because receivers that follow their caller would otherwise
// record nothing.
func (c Call) Traceparent() string {
	if !c.Target.TakesTraceContext() {
		return ""
	}
	flags := "-01"
	if c.Sampling == run.NotSampled {
		flags = "-00"
	}
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + flags
}

// TakesTraceContext tells whether the calls of t carry their trace context. Nobody else learns it, because the ids of traces
// of a system are nobody else's business.
func (t Target) TakesTraceContext() bool {
	switch {
	case t.Webhook != nil:
		return t.Webhook.TraceContext
	case t.Group != nil:
		return t.Group.TraceContext
	case t.Lambda != nil:
		return t.Lambda.TraceContext
	case t.SQS != nil:
		return t.SQS.TraceContext
	case t.SNS != nil:
		return t.SNS.TraceContext
	}
	return false
}
