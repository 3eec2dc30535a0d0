package dispatcher_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// templatedCall returns one attempt of a webhook with these templates.
func templatedCall(t testing.TB, w target.Webhook, payload string) target.Call {
	t.Helper()
	at := time.Date(2026, 1, 1, 2, 3, 4, 56e6, time.UTC)
	call := target.Call{
		App: "crm", Job: "nightly", Trigger: "eu", EventID: "evt_1", Attempt: 2, Payload: json.RawMessage(payload),
		Key:          run.Key{TriggerID: 1, ScheduledAt: at, Kind: run.KindSchedule},
		PreviousFire: at.Add(-24 * time.Hour), NextFire: at.Add(24 * time.Hour),
		Target: target.Target{Webhook: &w},
	}
	var err error
	if call.Templates, err = call.Target.Templates(); err != nil {
		t.Fatal(err)
	}
	return call
}

// templated returns a webhook that is valid except for the fields that set changes.
func templated(set func(*target.Webhook)) target.Webhook {
	var w target.Webhook
	w.SetDefaults()
	w.URL = "https://example.com/"
	set(&w)
	return w
}

func TestTemplatesRenderFieldsOfACall(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, want string }{
		"names": {`{{.App}}/{{.Job}}/{{.Trigger}} {{.Kind}} {{.EventID}}`, `crm/nightly/eu schedule evt_1`},
		"the run": {`{{.Run}}`, run.Key{TriggerID: 1,
			ScheduledAt: time.Date(2026, 1, 1, 2, 3, 4, 56e6, time.UTC), Kind: run.KindSchedule}.String()},
		"instants": {`{{.ScheduledAt}} {{.PreviousFire}} {{.NextFire}}`,
			`2026-01-01T02:03:04.056Z 2025-12-31T02:03:04.056Z 2026-01-02T02:03:04.056Z`},
		"the attempt":    {`{{.Attempt}}`, `2`},
		"the payload":    {`{"data":{{json .Payload}}}`, `{"data":{"a":[1,"<{{.Job}}>"]}}`},
		"JSON of others": {`[{{json .Job}},{{json .Attempt}},{{json .ScheduledAt}}]`, `["nightly",2,"2026-01-01T02:03:04.056Z"]`},
		"a form": {`at={{urlquery .ScheduledAt}}&p={{.Payload | json | urlquery}}`,
			`at=2026-01-01T02%3A03%3A04.056Z&p=%7B%22a%22%3A%5B1%2C%22%3C%7B%7B.Job%7D%7D%3E%22%5D%7D`},
		"a date":              {`{{date "%Y-%m-%d %H:%M:%S.%L %j %b %a %z %%" .ScheduledAt}}`, `2026-01-01 02:03:04.056 001 Jan Thu +0000 %`},
		"a date elsewhere":    {`{{date "%F %T %z" "America/New_York" .ScheduledAt}}`, `2025-12-31 21:03:04 -0500`},
		"a week":              {`{{.PreviousFire | date "%G-W%V"}}`, `2026-W01`},
		"a date in JSON":      {`{{json (date "%F" .NextFire)}} {{.NextFire | date "%F" | json}}`, `"2026-01-02" "2026-01-02"`},
		"Unix milliseconds":   {`{{date "%s%L" .ScheduledAt}}`, `1767232984056`},
		"literal braces":      {`{{"{{"}}.Job}} {{"\"" | json}}`, `{{.Job}} "\""`},
		"a choice":            {`{{if .PreviousFire}}since {{.PreviousFire | date "%F"}}{{else}}first{{end}}`, `since 2025-12-31`},
		"a choice of several": {`{{if .Payload}}{{if .NextFire}}both{{end}}{{else if .Job}}job{{end}}`, `both`},
		"trimmed":             {"{{- /* why */ -}}  a {{- .Job -}} \n b", "anightlyb"},
		"a text without any":  {`{"fixed": "}}"}`, `{"fixed": "}}"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := templated(func(w *target.Webhook) { w.Body = tt.body })
			if err := w.Validate(); err != nil {
				t.Fatal(err)
			}
			call := templatedCall(t, w, "{ \"a\": [1,\n\"<{{.Job}}>\"] }")
			if _, _, body, err := call.Request(); err != nil || string(body) != tt.want {
				t.Errorf("body = %s (%v), want %s", body, err, tt.want)
			}
		})
	}
}

func TestMissingFieldsRenderEmptyNullAndFalse(t *testing.T) {
	t.Parallel()
	w := templated(func(w *target.Webhook) {
		w.URL += "?since={{.PreviousFire}}&next={{urlquery .NextFire}}"
		w.Body = `[{{json .PreviousFire}},{{json (date "%F" .NextFire)}},{{json .Payload}},{{json .Trigger}}]` +
			`{{date "%F" .NextFire}}{{if .PreviousFire}}some{{else}}none{{end}}`
	})
	call := templatedCall(t, w, "")
	call.Trigger, call.PreviousFire, call.NextFire = "", time.Time{}, time.Time{}
	address, _, body, err := call.Request()
	if err != nil || address != "https://example.com/?since=&next=" || string(body) != `[null,null,null,null]none` {
		t.Errorf("got %s and %s (%v)", address, body, err)
	}
}

// No value can leave its place in a URL.
func TestValuesInURLsAreEscaped(t *testing.T) {
	t.Parallel()
	w := templated(func(w *target.Webhook) {
		w.URL = `https://example.com:8443/{{json .Payload}}/x%20y` +
			`?at={{.ScheduledAt}}&p={{urlquery (json .Payload)}}&d={{date "%d/%m" .ScheduledAt}}`
		w.Headers = map[string]string{"X-Job": "{{.Job}}", "X-Plain": "{a}"}
	})
	call := templatedCall(t, w, `"../?&#/\\ %41\u0000ü\"@evil.example"`)
	address, headers, body, err := call.Request()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	payload := string(call.Payload)
	want := url.Values{"at": {"2026-01-01T02:03:04.056Z"}, "p": {payload}, "d": {"01/01"}}
	if diff := cmp.Diff(want, u.Query()); diff != "" || u.Host != "example.com:8443" || u.Path != "/"+payload+"/x y" || u.Fragment != "" {
		t.Errorf("URL %s has another meaning: host %q, path %q, query (-want +got):\n%s", address, u.Host, u.Path, diff)
	}
	if diff := cmp.Diff(map[string]string{"X-Job": "nightly", "X-Plain": "{a}"}, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if string(body) != payload {
		t.Errorf("body = %s, want the payload", body)
	}
}

func TestInvalidTemplatesAreRefused(t *testing.T) {
	t.Parallel()
	body := func(text string) func(*target.Webhook) { return func(w *target.Webhook) { w.Body = text } }
	address := func(text string) func(*target.Webhook) { return func(w *target.Webhook) { w.URL = text } }
	header := func(text string) func(*target.Webhook) {
		return func(w *target.Webhook) { w.Headers = map[string]string{"X-A": text} }
	}
	callback := &target.CallbackPolicy{Timeout: run.DefaultCallbackTimeout}
	for name, tt := range map[string]struct {
		set  func(*target.Webhook)
		want string // path, code and words of the message
	}{
		"no such field":                {body("{{.Secret}}"), "/body template_field character 3: there is no such field; allowed are .App, .Job"},
		"a field in the wrong case":    {body("a\nb {{.scheduledAt}}"), "/body template_field line 2, character 5"},
		"a method":                     {body("{{.ScheduledAt.Unix}}"), "/body template_field fields have no parts"},
		"a part of the payload":        {body("{{json .Payload.a}}"), "/body template_field fields have no parts"},
		"everything":                   {body("{{.}}"), "/body template_field a lone dot"},
		"everything, by name":          {body("{{$}}"), "/body template_form neither a field nor a text"},
		"the payload as it is":         {body("{{.Payload}}"), "/body template_function {{json .Payload}}"},
		"the payload escaped only":     {body("{{urlquery .Payload}}"), "/body template_function {{json .Payload}}"},
		"no such function":             {body(`{{printf "%d" .Attempt}}`), "/body template_function allowed are json, urlquery, date"},
		"a function of text":           {body(`{{html .Job}}`), "/body template_function allowed are"},
		"env":                          {body(`{{env "PATH"}}`), "/body template_function allowed are"},
		"a function as a value":        {body(`{{json now}}`), "/body template_function allowed are"},
		"a function without arguments": {body(`{{json}}`), "/body template_function write {{json .ScheduledAt}}"},
		"too much for a function":      {body(`{{json .Job .App}}`), "/body template_function json takes one value"},
		"quotes in quotes":             {body(`{{json (json .Payload)}}`), "/body template_function not applied"},
		"escapes in escapes":           {body(`{{.Job | urlquery | urlquery}}`), "/body template_function not applied"},
		"JSON of escapes":              {body(`{{.Job | urlquery | json}}`), "/body template_function not applied"},
		"a date of no instant":         {body(`{{date "%F" .Job}}`), "/body template_function date takes a layout"},
		"a date without layout":        {body(`{{date .ScheduledAt}}`), "/body template_function date takes a layout"},
		"a date of a date":             {body(`{{.ScheduledAt | date "%F" | date "%T"}}`), "/body template_function date takes a layout"},
		"a field as layout":            {body(`{{date .Job .ScheduledAt}}`), "/body template_function date takes a layout"},
		"a layout of Go":               {body(`{{date "2006-01-02" .ScheduledAt}}`), "/body template_function there are %Y %m"},
		"an unknown directive":         {body(`{{date "%Q" .ScheduledAt}}`), "/body template_function there are %Y %m"},
		"half a directive":             {body(`{{date "%Y%" .ScheduledAt}}`), "/body template_function there are %Y %m"},
		"no such zone":                 {body(`{{date "%F" "Mars/Olympus" .ScheduledAt}}`), "/body template_function not an IANA zone"},
		"the host's zone":              {body(`{{date "%F" "Local" .ScheduledAt}}`), "/body template_function not an IANA zone"},
		"range":                        {body(`{{range .Payload}}x{{end}}`), "/body template_form this construct"},
		"with":                         {body(`{{with .Job}}{{.}}{{end}}`), "/body template_form this construct"},
		"template":                     {body(`{{template "x"}}`), "/body template_form this construct"},
		"define":                       {body(`{{define "x"}}{{end}}`), "/body template_form defines another"},
		"block":                        {body(`{{block "x" .}}{{end}}`), "/body template_form defines another"},
		"a variable":                   {body(`{{$x := .Job}}`), "/body template_form variables"},
		"a number":                     {body(`{{1}}`), "/body template_form neither a field"},
		"true":                         {body(`{{true}}`), "/body template_form neither a field"},
		"a field of a call":            {body(`{{(json .Payload).a}}`), "/body template_form neither a field"},
		"a field with arguments":       {body(`{{.Job "x"}}`), "/body template_form takes nothing"},
		"a field after a pipe":         {body(`{{.Job | .App}}`), "/body template_form takes nothing"},
		"a comparison":                 {body(`{{if eq .Kind "manual"}}{{end}}`), "/body template_function allowed are"},
		"a choice by a function":       {body(`{{if json .Payload}}{{end}}`), "/body template_form {{if .PreviousFire}}"},
		"a choice by a text":           {body(`{{if "x"}}{{end}}`), "/body template_form {{if .PreviousFire}}"},
		"a loop's end":                 {body(`{{if .Job}}{{break}}{{end}}`), "/body template_syntax"},
		"not closed":                   {body(`{{.Job`), "/body template_syntax line 1: unclosed action"},
		"closed too early":             {body(`{{.Job}`), "/body template_syntax"},
		"without end":                  {body(`{{if .Job}}x`), "/body template_syntax line 1: unexpected"},
		"a stray end":                  {body(`x{{end}}`), "/body template_syntax"},
		"a stray else":                 {body(`x{{else}}`), "/body template_syntax"},
		"empty":                        {body(`{{}}`), "/body template_syntax missing value"},
		"a strange character":          {body(`{{.Job § }}`), "/body template_syntax"},
		"in a header":                  {header("{{.Nope}}"), "/headers/X-A template_field"},
		"a header with a line":         {header("{{\"a\\nb\"}}"), "/headers/X-A header_value once its template is filled in"},
		"a header that grows": {header("{{.Job}}" + strings.Repeat("{{.ScheduledAt}}", 400)),
			"/headers/X-A header_size once its template"},
		"in a URL":                  {address("https://example.com/{{.Nope}}"), "/url template_field"},
		"a scheme":                  {address("{{.Job}}://example.com/"), "/url template_host"},
		"a host":                    {address("https://{{.Job}}.example.com/"), "/url template_host"},
		"the end of a host":         {address("https://example.com{{.Job}}"), "/url template_host"},
		"a port":                    {address("https://example.com:{{.Attempt}}/"), "/url template_host"},
		"a password":                {address("https://user:{{.Job}}@example.com/"), "/url template_host"},
		"a host behind a backslash": {address(`https://example.com\{{.Job}}/`), "/url template_host"},
		"a host behind a comment":   {address(`{{/* x */}}https://example.com/{{.Job}}`), "/url template_host"},
		"a fragment":                {address("https://example.com/#{{.Job}}"), "/url url_fragment"},
		"another scheme":            {address("ftp://example.com/{{.Job}}"), "/url url_scheme"},
		"where credentials are":     {address("http://169.254.169.254/{{.Job}}"), "/url egress_denied"},
		"a user":                    {address("http://user:pw@example.com/{{.Job}}"), "/url url_userinfo"},
		"no callback":               {body("{{json .CallbackToken}}"), "/body template_field add callback"},
		"a token in a URL": {func(w *target.Webhook) {
			w.URL, w.Callback = "https://example.com/{{.CallbackURL}}?token={{.CallbackToken}}", callback
		}, "/url template_field in a header or in the body"},
		"half an escape": {address("http://example.com/%{{.Job}}"), "/url url_syntax"},
		"a blank":        {address("http://example.com/a b{{.Job}}"), "/url url_syntax"},
		"a URL that grows": {address("http://example.com/" + strings.Repeat("{{.EventID}}", 100)),
			"/url url_too_long once its template"},
		"too long a URL":    {address("http://example.com/{{.Job}}" + strings.Repeat("a", 2048)), "/url url_too_long 2048"},
		"a body that grows": {body(strings.Repeat("{{.EventID}}", 10_000)), "/body payload_too_large once its template"},
		"too long a body":   {body(strings.Repeat("a", 256<<10+1)), "/body payload_too_large 256 KiB"},
		"an event that is not JSON": {func(w *target.Webhook) {
			w.CloudEvents, w.Body = target.CloudEventsStructured, "{{.Job}}"
		}, "/body json_syntax {{json .Job}}"},
		"a parameter that comes twice": {func(w *target.Webhook) {
			w.URL = "https://example.com/?key={{.Job}}&%{{\"41\"}}"
			w.Auth = &target.Auth{APIKey: &target.APIKeyAuth{Query: "key", Key: target.Secret{Reference: "env:SECRET_X"}}}
		}, "/auth/api_key/query auth_form"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var problems input.Problems
			if err := templated(tt.set).Validate(); !errors.As(err, &problems) || len(problems) != 1 {
				t.Fatalf("faults = %v, want %s", err, tt.want)
			}
			path, rest, _ := strings.Cut(tt.want, " ")
			code, words, _ := strings.Cut(rest, " ")
			if f := problems[0]; f.Path != path || f.Code != code || !strings.Contains(f.Message, words) {
				t.Errorf("fault = %+v, want %s", f, tt.want)
			}
		})
	}
}

func TestAllProblemsOfTemplatesAreReported(t *testing.T) {
	t.Parallel()
	w := templated(func(w *target.Webhook) {
		w.URL, w.Body = "https://{{.A}}/{{.B}}", "{{.C}}{{d .E}}{{range .F}}{{end}}{{if .G}}{{.H}}{{end}}"
		w.Headers = map[string]string{"X-I": "{{.I}}", "Host": "{{.Job}}"}
	})
	var problems input.Problems
	if !errors.As(w.Validate(), &problems) {
		t.Fatal("it is valid")
	}
	got := map[string]int{}
	for _, f := range problems {
		got[f.Path+" "+f.Code]++
	}
	want := map[string]int{
		"/url template_host": 1, "/url template_field": 2, "/body template_field": 3, "/body template_function": 1, "/body template_form": 1,
		"/headers/X-I template_field": 1, "/headers/Host header_reserved": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// Templates are filled in with the payload when the job is declared.
func TestValidationRendersTemplatesWithThePayload(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ url, body, payload, want string }{
		"too long for a URL": {"https://example.com/?p={{json .Payload}}", "", `"` + strings.Repeat("a", 2048) + `"`,
			"/target/webhook/url url_too_long"},
		"too long for a body": {"https://example.com/", "{{json .Payload}} {{json .Payload}}",
			`"` + strings.Repeat("a", 200<<10) + `"`, "/target/webhook/body payload_too_large"},
		"it fits":            {"https://example.com/?p={{json .Payload}}", "{{json .Payload}}", `"a"`, ""},
		"no JSON":            {"https://example.com/?p={{json .Payload}}", "", `{`, "/payload json_syntax"},
		"braces in payloads": {"https://example.com/", "", `"{{.Nope}}"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := templated(func(w *target.Webhook) { w.URL, w.Body = tt.url, tt.body })
			err := dispatcher.Job{App: "a", Name: "j",
				JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &w}, Payload: json.RawMessage(tt.payload)}}.Validate()
			var problems input.Problems
			if errors.As(err, &problems); len(problems) > 1 || (tt.want == "") != (err == nil) || err != nil &&
				problems[0].Path+" "+problems[0].Code != tt.want {
				t.Errorf("faults = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestUnsentBodyOrPayloadIsAWarning(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ method, url, body, want string }{
		"a payload next to a body":   {"POST", "https://example.com/", "{}", "/payload payload_unused"},
		"a payload in the body":      {"POST", "https://example.com/", "{{json .Payload}}", ""},
		"a payload of GET":           {"GET", "https://example.com/{{.Job}}", "", "/payload body_method"},
		"a payload in the URL":       {"GET", "https://example.com/{{json .Payload}}", "", ""},
		"a body and payload of HEAD": {"HEAD", "https://example.com/", "{{json .Payload}}", "/target/webhook/body body_method"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := templated(func(w *target.Webhook) { w.Method, w.URL, w.Body = tt.method, tt.url, tt.body })
			got := ""
			job := dispatcher.Job{JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &w}, Payload: json.RawMessage(`1`)}}
			for _, f := range job.Warn(nil) {
				got += f.Path + " " + f.Code
			}
			if got != tt.want {
				t.Errorf("warnings = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTemplatesCannotChangeTheHost(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"https://Example.com:8443/{{.Job}}", `https://Example.com:8443?x=%{{"41"}}`,
		"https://Example.com:8443/a%20b/{{.Attempt}}"} {
		w := templated(func(w *target.Webhook) { w.URL = text })
		if host, _ := (target.Target{Webhook: &w}).Host(); host != "example.com:8443" {
			t.Errorf("host of %s = %q", text, host)
		}
	}
}

// The longest templates, nested or repeated as deep as possible, are refused with a bounded number of problems, or
// stay within the bounds when they are filled in.
func TestLongTemplatesStayWithinBounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body     string
		problems int
	}{
		"parentheses":     {"{{" + strings.Repeat("(", 100_000) + ".Job" + strings.Repeat(")", 100_000) + "}}", 1},
		"choices":         {strings.Repeat("{{if .Job}}", 14_000) + strings.Repeat("{{end}}", 14_000), 0},
		"other choices":   {"{{if .Trigger}}" + strings.Repeat("{{else if .Trigger}}", 10_000) + "{{end}}", 0},
		"pipes":           {"{{.Job" + strings.Repeat("|json", 50_000) + "}}", 1},
		"unknown fields":  {strings.Repeat("{{.A}}", 40_000), 20},
		"a long payload":  {strings.Repeat("{{json .Payload}}", 15_000), 0},
		"values in plain": {strings.Repeat("{{.EventID}}", 21_000), 1},
	} {
		w := templated(func(w *target.Webhook) { w.Body = tt.body })
		payload := json.RawMessage("[" + strings.Repeat(" ", 250<<10) + "]")
		var problems input.Problems
		errors.As(dispatcher.Job{App: "a", Name: "j",
			JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &w}, Payload: payload}}.Validate(), &problems)
		if len(problems) != tt.problems {
			t.Errorf("%s: %d faults, want %d", name, len(problems), tt.problems)
		}
	}
}

// Any text is refused or gives a request within all bounds, to the host that it names; and problems repeat none of
// it.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{
		`{{.Job}}`, `{{json .Payload}}`, `{{.ScheduledAt | date "%F" "Europe/Berlin" | json | urlquery}}`,
		`{{if .PreviousFire}}a{{else if .NextFire}}b{{else}}c{{end}}`,
		`{{"{{"}}`, "{{- /* x */ -}}", `{{range .Payload}}{{end}}`, `{{define "x"}}{{end}}`, `{{$x := 1}}`, `{{`, `}}`,
		"{{`a\nb`}}", `{{(((.Job)))}}`, `{{'a'}}`, `{{1i}}`, "{{\"\\x00\"}}",
		`//evil.example/`, `@evil.example`, `?#%`, "\r\nX: y",
	} {
		f.Add(text, `{"a":"b"}`)
	}
	f.Fuzz(func(t *testing.T, text, payload string) {
		const marker = "hunter2"
		w := templated(func(w *target.Webhook) {
			w.URL, w.Body = "https://example.com/"+text, text+strings.ReplaceAll(text, "{{", "{{"+marker)
			w.Headers = map[string]string{"X-A": text}
		})
		job := dispatcher.Job{App: "a", Name: "j",
			JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &w}, Payload: json.RawMessage(payload)}}
		if err := job.Validate(); err != nil && strings.Contains(err.Error(), marker) {
			t.Fatalf("the faults repeat the text: %v", err)
		}
		w.Body = text
		if job.Validate() != nil {
			return
		}
		call := templatedCall(t, w, payload)
		address, headers, body, err := call.Request()
		if err != nil {
			return
		}
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host != "example.com" || len(address) > 2048 {
			t.Fatalf("URL %q (%v)", address, err)
		}
		if len(body) > input.MaxPayload || len(headers["X-A"]) > 8<<10 || strings.ContainsAny(headers["X-A"], "\r\n\x00") {
			t.Fatalf("body of %d bytes, header %q", len(body), headers["X-A"])
		}
	})
}

func BenchmarkTemplates(b *testing.B) {
	for _, n := range []int{0, 1, 10} {
		b.Run(fmt.Sprintf("%d_values", n), func(b *testing.B) {
			w := templated(func(w *target.Webhook) {
				if n > 0 {
					w.URL += `{{date "%Y/%m/%d" .ScheduledAt}}`
				}
				if n > 1 {
					w.Headers = map[string]string{"X-Job": "{{.Job}}"}
					w.Body = `{"job":{{json .Job}},"run":"{{.Run}}","at":"{{.ScheduledAt}}","from":{{json .PreviousFire}},` +
						`"to":{{json .NextFire}},"attempt":{{.Attempt}},"id":"{{.EventID}}","data":{{json .Payload}}}`
				}
			})
			call := templatedCall(b, w, `{"customer":42,"items":["a","b","c"]}`)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := call.Request(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
