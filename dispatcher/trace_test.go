package dispatcher_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestAttemptsOfARunShareATraceAndEachIsASpan(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-01$`)
	traces, spans := map[string]bool{}, map[string]bool{}
	for _, installation := range []string{"production", "staging"} { // with the same jobs
		for _, trigger := range []int64{1, 2} {
			for attempt := 1; attempt <= 3; attempt++ {
				call := target.Call{Installation: installation, Key: run.Key{TriggerID: trigger}, Attempt: attempt,
					Target: target.Target{Webhook: &target.Webhook{TraceContext: true}}}
				parts := form.FindStringSubmatch(call.Traceparent())
				if again := call.Traceparent(); parts == nil || again != parts[0] {
					t.Fatalf("traceparent of trigger %d attempt %d = %q, then %q", trigger, attempt, parts, again)
				}
				traces[parts[1]], spans[parts[2]] = true, true
			}
		}
	}
	if len(traces) != 4 || len(spans) != 12 {
		t.Errorf("4 runs of 3 attempts have %d traces and %d spans, want 4 and 12", len(traces), len(spans))
	}
}

func TestShardsShareTheTraceOfTheirBroadcast(t *testing.T) {
	t.Parallel()
	parent := run.Key{TriggerID: 1, ScheduledAt: time.UnixMilli(1), Kind: run.KindSchedule}
	shards := []run.Key{parent, parent}
	shards[0].Shard, shards[1].Shard = 1, 2
	of := run.TraceOf("i", parent.String())
	if a, b := run.TraceOf("i", shards[0].String()), run.TraceOf("i", shards[1].String()); a != of || b != of {
		t.Errorf("traces of shards = %s and %s, want %s", a, b, of)
	}
	if a, b := run.SpanOf("i", shards[0].String(), 1), run.SpanOf("i", shards[1].String(), 1); a == b {
		t.Errorf("two shards have the span %s", a)
	}
}

func TestOnlyTargetsWithTraceContextGetIt(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(takes bool) target.Target{
		"webhook": func(b bool) target.Target {
			return target.Target{Webhook: &target.Webhook{TraceContext: b}}
		},
		"group": func(b bool) target.Target {
			return target.Target{Group: &target.GroupTarget{TraceContext: b}}
		},
		"lambda": func(b bool) target.Target { return target.Target{Lambda: &target.Lambda{TraceContext: b}} },
		"sqs":    func(b bool) target.Target { return target.Target{SQS: &target.SQS{TraceContext: b}} },
		"sns":    func(b bool) target.Target { return target.Target{SNS: &target.SNS{TraceContext: b}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := (target.Call{Target: to(false)}).Traceparent(); got != "" {
				t.Errorf("a %s that does not take it gets %q", name, got)
			}
			if got := (target.Call{Target: to(true), Sampling: run.NotSampled}).Traceparent(); len(got) != 55 || got[53:] != "00" {
				t.Errorf("a %s that takes it gets %q of a trace that is not recorded, want one that says so", name, got)
			}
		})
	}
}

func TestParseTraceparent(t *testing.T) {
	t.Parallel()
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, tt := range map[string]struct {
		text        string
		ok, sampled bool
	}{
		"sampled":                          {"00-" + trace + "-" + span + "-01", true, true},
		"not sampled":                      {"00-" + trace + "-" + span + "-00", true, false},
		"a later version with more fields": {"01-" + trace + "-" + span + "-01-more", true, true},
		"more fields in version 00":        {"00-" + trace + "-" + span + "-01-more", false, false},
		"the forbidden version":            {"ff-" + trace + "-" + span + "-01", false, false},
		"capital letters":                  {"00-0AF7651916CD43DD8448EB211C80319C-" + span + "-01", false, false},
		"no trace":                         {"00-00000000000000000000000000000000-" + span + "-01", false, false},
		"no span":                          {"00-" + trace + "-0000000000000000-01", false, false},
		"nothing":                          {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := run.ParseTraceparent(tt.text)
			if ok != tt.ok || ok && (got.Sampled != tt.sampled || got.Trace.String() != trace || got.Span.String() != span) {
				t.Errorf("ParseTraceparent(%q) = %+v, %t, want %t, sampled %t", tt.text, got, ok, tt.ok, tt.sampled)
			}
		})
	}
}
