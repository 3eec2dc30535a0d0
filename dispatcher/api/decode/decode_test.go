package decode

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// FuzzDecode checks that encoding/json reads every accepted text in the same way, that decode never
// panics, and that every problem has a code.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{}{}`, `{"name":"a","enabled":false}`,
		`{"target":{"webhook":{"url":"https://a/","timeout":"5s","headers":{"a":"b"}}}}`,
		`{"triggers":{"a":{"expression":"* * * * *","timezone":"UTC","start_at":"2026-01-01T00:00:00Z","repeat_count":3}},
			"payload":[1,{"a":null}]}`,
		`{"name":"a","name":"b"}`, `{"description":"\ud800"}`, `{"a":{"b":[1,2,{"c":"d"}]}}`, `{"enabled":null,"triggers":null,"target":null}`,
		`{"triggers":{"a":{"repeat_count":9223372036854775807},"b":{"repeat_count":1e1}}}`, "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 40),
		`{"description":"\ud83d\ude00\u00e4\/\"\\\b\f\n\r\t","\u006eame":"a\u0062"}`, ` { "labels" : { "\u0061" : "\ud83dx" , "b" : "" } } `,
		`{"triggers":{},"labels":{ },"retry":{"delays":[ ]}}`, `{"retry":{"delays":["1s" , "2s"]},"payload": [1 , -2.5e+3]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got dispatcher.Job
		d := newDecoder(nil)
		problems, work := workOf(t, d, string(text), &got)
		if work > mostWork(string(text)) {
			t.Errorf("%d bytes cost %d steps, want %d at most", len(text), work, mostWork(string(text)))
		}
		for _, problem := range problems {
			if problem.Code == "" || problem.Message == "" || len(problem.Message) > 1000 {
				t.Errorf("problem %+v says too little or too much", problem)
			}
		}
		AddInvalid(&problems, got.Validate())
		if len(problems) > 0 {
			return
		}
		text = withoutReadOnly(t, text)
		var want dispatcher.Job
		want.SetDefaults()
		want.LeaveToApp()
		if want.Target.Webhook == nil && got.Target.Webhook != nil {
			want.Target.Webhook = &target.Webhook{}
			want.Target.Webhook.SetDefaults()
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("accepted, but encoding/json says %v: %s", err, text)
		}
		// encoding/json gives the elements of a map no defaults; compare only fields without one.
		for name, trigger := range want.Triggers {
			mine := got.Triggers[name]
			trigger.Enabled, trigger.MisfireAfter = mine.Enabled, mine.MisfireAfter
			if trigger.StartAt != nil && mine.StartAt != nil {
				trigger.StartAt = mine.StartAt // in UTC and milliseconds here
			}
			if trigger.EndAt != nil && mine.EndAt != nil {
				trigger.EndAt = mine.EndAt
			}
			want.Triggers[name] = trigger
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("decode differs from encoding/json (-json +decode):\n%s", diff)
		}
	})
}

// withoutReadOnly removes the fields that decode ignores.
func withoutReadOnly(t *testing.T, text []byte) []byte {
	t.Helper()
	var job map[string]json.RawMessage
	if err := json.Unmarshal(text, &job); err != nil {
		t.Fatalf("accepted, but encoding/json says %v: %s", err, text)
	}
	for name, field := range Fields(reflect.TypeFor[dispatcher.Job]()) {
		if field.ReadOnly {
			delete(job, name)
		}
	}
	var triggers map[string]map[string]json.RawMessage
	if err := json.Unmarshal(job["triggers"], &triggers); err == nil {
		for _, trigger := range triggers {
			for name, field := range Fields(reflect.TypeFor[dispatcher.Trigger]()) {
				if field.ReadOnly {
					delete(trigger, name)
				}
			}
		}
		job["triggers"], _ = json.Marshal(triggers)
	}
	out, _ := json.Marshal(job)
	return out
}

func TestReadOnlyFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	var job dispatcher.Job
	problems := JSON(t.Context(), []byte(`{"revision":"seven","state":5,"warnings":null,"created_at":"never",`+
		`"triggers":{"a":{"expression":"x","state":[],"paused":1}}}`), &job)
	if len(problems) != 0 || job.Revision != 0 || job.Triggers["a"].Expression != "x" {
		t.Errorf("decode = %+v, %v, want read-only fields ignored", job, problems)
	}
}

func TestHostileBodiesAreCheapToRefuse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 500_000)
	for name, text := range map[string]string{
		"a long key above many values":  `{"` + long + `":[` + strings.Repeat("0,", 50_000) + `0]}`,
		"a long key above many twins":   `{"` + long + `":{"a":0` + strings.Repeat(`,"a":0`, 20_000) + `}}`,
		"deep nesting with many values": `{"payload":` + strings.Repeat(`[0,`, 99) + `0` + strings.Repeat(`]`, 99) + `}`,
		"deep nesting of twins": `{"payload":` + strings.Repeat(`{"kkkkkkkkkkkkkkkkkkkkkkkk":0,"kkkkkkkkkkkkkkkkkkkkkkkk":`, 98) +
			`0` + strings.Repeat(`}`, 98) + `}`,
		"many twins far down":             twinsFarDown(),
		"many elements":                   `{"retry":{"delays":["1s"` + strings.Repeat(`,"1s"`, 100_000) + `]}}`,
		"many long unknown keys":          `{"z":0` + strings.Repeat(`,"`+strings.Repeat("y", 60)+`":0`, 5_000) + `}`,
		"many unknown fields":             `{"z":0` + strings.Repeat(`,"y":0`, 25_000) + `}`,
		"many triggers":                   `{"triggers":{"a":{}` + manyKeys(10_000) + `}}`,
		"an endless number":               `{"triggers":{"a":{"repeat_count":` + strings.Repeat("9", 300_000) + `}}}`,
		"escapes":                         `{"description":"` + strings.Repeat(`\u0041`, 50_000) + `"}`,
		"many brackets inside of strings": `{"description":"` + strings.Repeat(`[`, 300_000) + `"}`,
	} {
		var job dispatcher.Job
		problems, work := workOf(t, newDecoder([]byte(text)), text, &job)
		if work > mostWork(text) {
			t.Errorf("%s: %d bytes cost %d steps, want %d at most", name, len(text), work, mostWork(text))
		}
		AddInvalid(&problems, job.Validate())
		size := 0
		for _, f := range problems {
			size += len(f.Path) + len(f.Message)
		}
		if size > 100_000 {
			t.Errorf("%s: the problems take %d bytes", name, size)
		}
	}
}

// workOf decodes a text, and returns its problems and how many bytes were read and written.
func workOf(t *testing.T, d *decoder, text string, into any) (input.Problems, int) {
	t.Helper()
	raw, problem := document([]byte(text))
	if problem != nil {
		return input.Problems{*problem}, len(text)
	}
	return d.read(raw, into), d.work
}

// mostWork bounds the work for a text: each byte is read once for each level of fields, at most eight, and a hundred
// problems are written. In 50 ms, the bound for a KiB, a processor of today does some hundred million such steps.
func mostWork(text string) int { return 10*len(text) + 300_000 }

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"k` + strings.Repeat("a", i%7) + string(rune('a'+i%26)) + `":{}`)
	}
	return b.String()
}

func twinsFarDown() string {
	return `{"payload":` + strings.Repeat(`[`, 98) + `{"a":0` + strings.Repeat(`,"a":0`, 99_000) + `}` + strings.Repeat(`]`, 98) + `}`
}

// A request that takes more than 50 ms of processor for each KiB is a fault; see mostWork.
func BenchmarkDecodeTwinsFarDown(b *testing.B) {
	text := []byte(twinsFarDown())
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var job dispatcher.Job
		if problems := JSON(b.Context(), text, &job); len(problems) != MaxProblems+1 {
			b.Fatalf("%d problems, want %d", len(problems), MaxProblems+1)
		}
	}
}
