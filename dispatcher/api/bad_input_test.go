package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/api"
)

// with returns validJob with the JSON value raw at a path of keys.
func with(t *testing.T, raw string, keys ...string) string {
	t.Helper()
	var job map[string]any
	if err := json.Unmarshal([]byte(validJob), &job); err != nil {
		t.Fatal(err)
	}
	at := job
	for _, key := range keys[:len(keys)-1] {
		inner, ok := at[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[key] = inner
		}
		at = inner
	}
	at[keys[len(keys)-1]] = json.RawMessage(raw)
	body, err := json.Marshal(job)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return string(body)
}

// row is a value at some place of a job, and the expected code.
type row struct {
	value string // as a text, or, beginning with raw, as JSON
	code  string
}

const raw = "JSON "

func (r row) json() string {
	if text, ok := strings.CutPrefix(r.value, raw); ok {
		return text
	}
	text, _ := json.Marshal(r.value)
	return string(text)
}

// problems lists those of the row at a path: NUL is reported for every text.
func (r row) problems(path string) []string {
	problems := []string{path + " " + r.code}
	if strings.Contains(r.value, "\x00") {
		problems = append(problems, path+" string_nul")
	}
	return problems
}

var (
	badExpressions = []row{
		{"", "cron_empty"}, {"   ", "cron_empty"}, {"* * * *", "cron_fields"}, {"60 * * * *", "cron_range"},
		{"*/0 * * * *", "cron_step"}, {"*/100 * * * *", "cron_step"}, {"5-1 * * * *", "cron_range"}, {"0 0 30 2 *", "cron_never"},
		{"0 0 * * 8", "cron_range"}, {"1,,2 * * * *", "cron_syntax"}, {"-1 * * * *", "cron_syntax"}, {"JAN * * * *", "cron_name"},
		{"* * * * *\n* * * * *", "cron_control"}, {"*\u00a0* * * *", "cron_control"}, {"0x10 * * * *", "cron_syntax"},
		{"1.5 * * * *", "cron_syntax"}, {strings.Repeat("1,", 50_000) + "1 * * * *", "cron_too_long"}, {"TZ=UTC", "cron_tz_prefix"},
		{"TZ=Local * * * * *", "cron_tz_prefix"}, {"delay(30d)", "rate_syntax"},
		{"rate(+5m)", "rate_syntax"}, {"@every +5s", "rate_syntax"}, {"at(9999-12-31T00:00:00Z)", "time_range"}, {"@every 0s", "rate_min"},
		{"@every -1m", "rate_min"}, {"@every 1ns", "rate_min"},
		{"@reboot", "cron_macro"}, {"@EVERY 1m", "cron_macro"}, {"? ? * * *", "cron_syntax"},
		{"at(2026-02-30T00:00:00Z)", "time_invalid"}, {"at(2026-02-20T23:59:60Z)", "time_invalid"}, {"at(2020-02-20T10:00:00Z)", "at_past"},
		{raw + `5`, "json_type"}, {raw + `null`, "required"}, {raw + `["* * * * *"]`, "json_type"},
	}
	badZones = []row{
		{"Mars/Olympus", "tz_unknown"}, {"america/new_york", "tz_unknown"}, {"Local", "tz_unknown"}, {"localtime", "tz_unknown"},
		{"+02:00", "tz_offset"}, {"UTC+2", "tz_offset"}, {"../../etc/passwd", "tz_unknown"}, {"Europe/Berlin\x00", "tz_unknown"},
	}
	badTimeouts = []row{
		{"", "duration_empty"}, {"5", "duration_unit"}, {"2d", "duration_max"}, {"1w", "duration_unit"}, {"PT5S", "duration_syntax"},
		{"0s", "duration_min"}, {"99ms", "duration_min"}, {"-5s", "duration_syntax"}, {"999999h", "duration_max"}, {"9999999h", "duration_max"},
		{"24h0m0.001s", "duration_max"}, {"5 s", "duration_syntax"}, {"five", "duration_syntax"}, {raw + `5`, "json_type"},
		{"+5s", "duration_syntax"}, {"5S", "duration_syntax"}, {" 5s", "duration_syntax"},
		{"1h 5m", "duration_syntax"}, {".5s", "duration_syntax"},
		{raw + `null`, "required"},
	}
	badInstants = []row{
		{"2026-02-30T00:00:00Z", "time_invalid"}, {"2026-05-01T10:00:00", "time_zone_missing"}, {"2026-05-01T10:00:60Z", "time_invalid"},
		{"1999-12-31T23:59:59Z", "time_range"}, {"2201-01-01T00:00:00Z", "time_range"},
		{"tomorrow", "time_invalid"}, {"", "time_invalid"}, {"0001-01-01T00:00:00Z", "time_range"}, {raw + `1767225600`, "json_type"},
	}
	badURLs = []row{
		{"ftp://x/", "url_scheme"}, {"file:///etc/passwd", "url_scheme"}, {"unix:///var/run/x.sock", "url_scheme"},
		{"http:///x", "url_host"}, {"http:x", "url_host"}, {"//host/", "url_host"}, {"http://user:pw@host/", "url_userinfo"},
		{"http://exa mple/", "url_syntax"}, {"http://example.com/\r\nX: y", "url_syntax"}, {"http://example.com/%zz", "url_syntax"},
		{"http://example.com/" + strings.Repeat("a", 9<<10), "url_too_long"}, {"http://169.254.169.254/", "egress_denied"},
		{"http://[::ffff:a9fe:a9fe]/", "egress_denied"}, {"http://127.1/", "egress_denied"}, {"http://2130706433/", "egress_denied"},
		{"http://0x7f.1/", "egress_denied"}, {"http://0177.0.0.1/", "egress_denied"},
		{"http://[fd00:ec2::254]/", "egress_denied"}, {"http://[64:ff9b::a9fe:a9fe]/", "egress_denied"},
		{"http://metadata.google.internal/", "egress_denied"}, {"http://0.0.0.0/", "egress_denied"},
		{"http://[ff02::1]/", "egress_denied"}, {"http://a..b/", "url_host"}, {"http://-a/", "url_host"},
		{"http://xn--/", "url_host"},
		{"https://{{.Job}}/", "template_host"}, {"https://example.com/{{.Nope}}", "template_field"},
		{"https://example.com/%{{.Job}}", "url_syntax"},
		{"ftp://example.com/{{.Job}}", "url_scheme"}, {"https://example.com/#{{.Job}}", "url_fragment"},
		{"https://example.com/" + strings.Repeat("{{.Run}}", 100), "url_too_long"},
		{"http://host:99999/", "url_port"}, {"http://host:080/", "url_port"},
		{"http://host:/", "url_port"}, {"http://host:00080", "url_port"}, {"http://host:0/", "url_port"}, {"http://host:+80/", "url_port"},
		{"http://host:80a/", "url_port"}, {"http://host:\uff18\uff10/", "url_port"}, {"http://[::1]:/", "url_port"},
		{"https://host:080/{{.Job}}", "url_port"},
		{"http://127\u30020\u30020\u30021/", "egress_denied"}, {"http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/", "egress_denied"},
		{"http://\uff11\uff10.0.0.1/", "egress_denied"}, {"http://%E2%91%A0.0.0.1/", "egress_denied"},
		{"http://metadata\uff0egoogle.internal/", "egress_denied"},
		{"http://\u24dbocalhost/", "url_host"}, {"https://b\u00fccher.example/{{.Job}}", "url_host"}, {"http://ex\u00adample.com/", "url_host"},
		{"http://xn--a/", "url_host"}, {"http://xn--example-/", "url_host"}, {"https://example.com/#frag", "url_fragment"}, {"", "required"},
		{raw + `null`, "required"}, {raw + `5`, "json_type"},
	}
	badTemplates = []row{
		{"{{.Secret}}", "template_field"}, {"{{.}}", "template_field"}, {"{{json .Payload.a}}", "template_field"},
		{"{{.Payload}}", "template_function"},
		{`{{env "PATH"}}`, "template_function"}, {`{{printf "%d" .Attempt}}`, "template_function"},
		{`{{date "2006" .ScheduledAt}}`, "template_function"},
		{"{{range .Payload}}{{end}}", "template_form"}, {"{{with .Job}}{{end}}", "template_form"}, {`{{define "x"}}{{end}}`, "template_form"},
		{"{{$x := .Job}}", "template_form"}, {"{{1}}", "template_form"}, {"{{", "template_syntax"},
		{"{{.Job", "template_syntax"}, {"{{if .Job}}", "template_syntax"},
	}
	badMethods = []row{
		{"get", "method_unknown"}, {"FOO", "method_unknown"}, {"CONNECT", "method_unknown"}, {"TRACE", "method_unknown"},
		{"POST\r\n", "method_unknown"}, {"", "method_unknown"},
	}
	badHeaderNames = []row{
		{"X A", "header_name"}, {"X:A", "header_name"}, {"", "header_name"}, {"Ä", "header_name"},
		{"Host", "header_reserved"}, {"content-length", "header_reserved"}, {"Transfer-Encoding", "header_reserved"},
		{"Connection", "header_reserved"}, {"webhook-id", "header_reserved"}, {"Webhook-Signature", "header_reserved"},
		{"traceparent", "header_reserved"}, {"Tracestate", "header_reserved"}, {"carillon-fence", "header_reserved"},
		{"Webhook_Id", "header_reserved"}, {"CARILLON_APP", "header_reserved"}, {"Carillon.Job", "header_reserved"},
		{"content_length", "header_reserved"}, {"Carillon!Run", "header_reserved"},
	}
	badHeaderValues = []row{
		{"a\rb", "header_value"}, {"a\nb", "header_value"}, {"a\x00b", "header_value"}, {strings.Repeat("a", 1_000_000), "header_size"},
		{raw + `5`, "json_type"}, {raw + `null`, "required"},
	}
	badReferences = []row{
		{"SECRET_X", "secret_reference"}, {"whsec_aHVudGVyMg==", "secret_reference"}, {"env:PATH", "secret_reference"},
		{"env:SECRET_", "secret_reference"}, {"env:SECRET_A B", "secret_reference"}, {"env:secret_x", "secret_reference"},
		{"env:", "secret_reference"},
		{"ENV:SECRET_X", "secret_reference"}, {"file:", "secret_reference"}, {"file:/etc/shadow", "secret_reference"},
		{"file:../x", "secret_reference"},
		{"file:a/../../x", "secret_reference"}, {"file:a//b", "secret_reference"}, {"file:.", "secret_reference"},
		{"file:a\x00", "secret_reference"},
		{"file:" + strings.Repeat("a", 513), "secret_reference"}, {"vault:x", "secret_reference"},
	}
	badSigning = []row{
		{"", "secret_length"}, {"hunter2", "secret_form"}, {"whsec_aHVudGVyMg==", "secret_length"}, {"whsec_hunter2!", "secret_length"},
		{"whsk_aHVudGVyMg==", "secret_length"}, {strings.Repeat("x", 65<<10), "secret_length"},
	}
	badToken = []row{{"", "secret_length"}, {"a\nb", "header_value"}, {strings.Repeat("x", 65<<10), "secret_length"}}
	badNames = []row{
		{strings.Repeat("a", 300), "name_format"}, {"../x", "name_format"}, {"a b", "name_format"}, {"\u202etxt", "name_format"},
		{"a\u200bb", "name_format"}, {"🔔", "name_format"}, {"A", "name_format"}, {"-a", "name_format"},
		{"a\x00", "name_format"}, {"a\n", "name_format"},
	}
)

func TestBadFieldsAreReportedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	before := w.must(http.StatusOK, "GET", oneJob, "").Body.String()

	trigger := []string{"triggers", "nightly"}
	webhook := []string{"target", "webhook"}
	for _, place := range []struct {
		keys []string
		rows []row
	}{
		{append(trigger, "expression"), badExpressions},
		{append(trigger, "timezone"), badZones},
		{append(trigger, "start_at"), badInstants},
		{append(trigger, "end_at"), badInstants},
		{append(trigger, "dialect"), []row{{"Quartz", "enum"}, {"cron", "enum"}, {raw + `1`, "json_type"}}},
		{append(trigger, "gap"), []row{{"both", "enum"}}},
		{append(trigger, "overlap"), []row{{"LAST", "enum"}}},
		{append(trigger, "repeat_count"), []row{
			{raw + `-1`, "repeat_range"}, {raw + `1000000000`, "repeat_range"}, {raw + `1.5`, "json_type"}, {raw + `1.0`, "json_type"},
			{raw + `1e3`, "json_type"}, {raw + `9223372036854775808`, "json_type"}, {"5", "json_type"}, {raw + `null`, "required"},
		}},
		{append(trigger, "misfire_after"), []row{{"500ms", "duration_min"}, {"25h", "duration_max"}, {"60", "duration_unit"}}},
		{[]string{"concurrency_policy"}, []row{{"Forbid", "enum"}, {"skip", "enum"}}},
		{append(trigger, "misfire_policy"), []row{{"FIRE_ONCE", "enum"}, {"ignore", "enum"}}},
		{append(trigger, "catch_up_window"), []row{{"59s", "duration_min"}, {"-1h", "duration_syntax"},
			{"8761h", "duration_max"}, {"366d", "duration_max"}, {"1w", "duration_unit"}}},
		{append(trigger, "enabled"), []row{{"true", "json_type"}, {raw + `1`, "json_type"}, {raw + `null`, "required"}}},
		{append(webhook, "url"), badURLs},
		{append(webhook, "timeout"), badTimeouts},
		{append(webhook, "method"), badMethods},
		{append(webhook, "headers", "x-key"), badHeaderValues},
		{append(webhook, "signing"), []row{{"whsec_x", "json_type"}}},
		{append(webhook, "signing", "secrets", "current", "reference"), badReferences},
		{append(webhook, "signing", "secrets"), []row{{raw + `{}`, "required"}, {raw + `[]`, "json_type"}}},
		{append(webhook, "signing", "secrets", "current", "value"), badSigning},
		{append(webhook, "auth", "bearer", "token", "value"), badToken},
		{append(webhook, "auth", "bearer", "token"), []row{
			{raw + `{}`, "required"}, {raw + `{"reference":"env:SECRET_X","stored":true}`, "secret_form"}, {"hunter2", "json_type"},
		}},
		{append(webhook, "auth"), []row{{raw + `{}`, "auth_form"}, {"basic", "json_type"}}},
		{append(webhook, "auth", "api_key"), []row{{raw + `{"key":{"reference":"env:SECRET_X"}}`, "auth_form"}}},
		{append(webhook, "success_codes"), []row{{raw + `"2xx"`, "json_type"}, {raw + `[]`, "required"}}},
		{append(webhook, "expect_body"), []row{{"(", "regexp"}, {"a{2000}", "regexp"},
			{strings.Repeat("a", 1025), "text_too_long"}, {raw + `1`, "json_type"}}},
		{append(webhook, "tls", "min_version"), []row{{"1.1", "enum"}, {"TLS1.2", "enum"}}},
		{append(webhook, "tls", "ca_certificates"), []row{{"hunter2", "tls_certificate"}, {strings.Repeat("x", 65<<10), "text_too_long"}}},
		{append(webhook, "cloud_events"), []row{{"both", "enum"}, {"Binary", "enum"}, {raw + `true`, "json_type"}}},
		{[]string{"target", "webhook"}, []row{{raw + `"https://example.com"`, "json_type"}, {raw + `null`, "required"}}},
		{[]string{"triggers"}, []row{{raw + `[]`, "json_type"}}},
		{[]string{"triggers", "nightly"}, []row{{raw + `"0 0 2 * * ?"`, "json_type"}, {raw + `null`, "required"}}},
		{[]string{"node_labels", "zone"}, []row{{"", "label_format"}, {"a b", "label_format"}, {"a,b", "label_format"},
			{raw + `1`, "json_type"}}},
		{[]string{"node_labels", "a=b"}, []row{{"x", "label_format"}}},
		{[]string{"delivery"}, []row{{"exactly_once", "enum"}, {raw + `null`, "required"}, {raw + `1`, "json_type"}}},
		{[]string{"priority"}, []row{{raw + `-1`, "count_range"}, {raw + `10`, "count_range"}, {raw + `1.5`, "json_type"}, {"5", "json_type"}}},
		{[]string{"description"}, []row{{strings.Repeat("x", 1025), "text_too_long"}, {"a\x00b", "text_invalid"},
			{"\x1b[2J", "text_invalid"}, {raw + `7`, "json_type"}}},
		{[]string{"name"}, append([]row{{"", "name_format"}, {"other", "name_mismatch"}, {raw + `7`, "json_type"}}, badNames...)},
		{[]string{"app"}, []row{{"other", "name_mismatch"}}},
		{[]string{"Name"}, []row{{"sync", "json_unknown_field"}}},
		{[]string{"trigers"}, []row{{raw + `{}`, "json_unknown_field"}}},
		{append(trigger, "cron"), []row{{"* * * * *", "json_unknown_field"}}},
		{append(webhook, "headers", "x-key"), badTemplates},
		{append(webhook, "body"), append(badTemplates, row{raw + `{}`, "json_type"})},
		{append(webhook, "data"), []row{{"x", "json_unknown_field"}}},
		{[]string{"target", "lambda"}, []row{{raw + `{}`, "target_kind"}}},
	} {
		for _, row := range place.rows {
			path := "/" + strings.Join(place.keys, "/")
			status := http.StatusUnprocessableEntity
			if strings.HasPrefix(row.code, "json_") {
				status = http.StatusBadRequest
			}
			w.do("PUT", oneJob, with(t, row.json(), place.keys...)).refused(status, row.problems(path)...)
		}
	}
	for _, row := range badHeaderNames {
		w.do("PUT", oneJob, with(t, `"x"`, append(webhook, "headers", row.value)...)).
			refused(http.StatusUnprocessableEntity, "/target/webhook/headers/"+row.value+" "+row.code)
	}
	for _, row := range append(badNames[1:], row{"", "name_format"}) { // the first is cut in paths
		w.do("PUT", oneJob, with(t, `{"expression":"0 0 2 * * ?","timezone":"UTC"}`, "triggers", row.value)).
			refused(http.StatusUnprocessableEntity, row.problems("/triggers/"+strings.ReplaceAll(row.value, "/", "~1"))...)
	}
	for _, row := range badNames {
		w.do("PUT", "/v1/apps/"+url.PathEscape(row.value), `{}`).refused(http.StatusUnprocessableEntity, "/name "+row.code)
		w.do("PUT", "/v1/apps/crm/jobs/"+url.PathEscape(row.value), validJob).refused(http.StatusUnprocessableEntity, "/name "+row.code)
	}
	for _, weight := range []string{"-1", "101"} {
		w.do("PUT", oneApp, `{"bounds":{"weight":`+weight+`}}`).refused(http.StatusUnprocessableEntity, "/bounds/weight count_range")
	}
	for retention, code := range map[string]string{
		`"23h59m"`: "duration_min", `"-24h"`: "duration_syntax", `"87601h"`: "duration_max",
		`"3651d"`: "duration_max", `"4w"`: "duration_unit", `""`: "duration_empty",
	} {
		w.do("PUT", oneApp, `{"retention":`+retention+`}`).refused(http.StatusUnprocessableEntity, "/retention "+code)
	}
	if diff := cmp.Diff(before, w.must(http.StatusOK, "GET", oneJob, "").Body.String()); diff != "" {
		t.Errorf("the job changed although everything was refused (-before +after):\n%s", diff)
	}
	if items := into[struct{ Items []json.RawMessage }](w.must(http.StatusOK, "GET", "/v1/apps/crm/jobs", "")).Items; len(items) != 1 {
		t.Errorf("app has %d jobs although all but one were refused", len(items))
	}
}

func TestBadBodiesAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	before := w.must(http.StatusOK, "GET", oneJob, "").Body.String()
	nested := func(depth int) string { return strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth) }
	headers := map[string]string{}
	triggers := map[string]any{}
	for i := range 200 {
		headers[fmt.Sprintf("x-%d", i)] = "v"
		triggers[fmt.Sprintf("t-%d", i)] = map[string]string{"expression": "* * * * *", "timezone": "UTC"}
	}
	manyHeaders, _ := json.Marshal(headers)
	manyTriggers, _ := json.Marshal(triggers)
	for _, tt := range map[string]struct {
		body     string
		headers  []string
		status   int
		problems []string
	}{
		"empty":             {" ", nil, 400, []string{" json_syntax"}},
		"truncated":         {validJob[:50], nil, 400, []string{" json_syntax"}},
		"not JSON":          {`{'a':1}`, nil, 400, []string{" json_syntax"}},
		"a trailing comma":  {`{"enabled":true,}`, nil, 400, []string{" json_syntax"}},
		"two values":        {`{}{}`, nil, 400, []string{" json_trailing"}},
		"junk after it":     {validJob + "x", nil, 400, []string{" json_trailing"}},
		"invalid UTF-8":     {"{\"description\":\"\xff\"}", nil, 400, []string{" json_utf8"}},
		"a byte order mark": {"\ufeff" + validJob, nil, 400, []string{" json_syntax"}},
		"an array":          {`[]`, nil, 400, []string{" json_type"}},
		"null":              {`null`, nil, 400, []string{" json_type"}},
		"no target":         {`{}`, nil, 422, []string{"/target/webhook required"}},
		"null target":       {`{"target":null}`, nil, 422, []string{"/target required"}},
		"a body that grows": {with(t, `"`+strings.Repeat("{{.EventID}}", 10_000)+`"`, "target", "webhook", "body"),
			nil, 413, []string{"/target/webhook/body payload_too_large"}},
		"a key twice":              {`{"enabled":true,"enabled":false,` + validJob[1:], nil, 400, []string{"/enabled json_duplicate_key"}},
		"a key twice in a payload": {with(t, `{"a":{"b":1,"b":2}}`, "payload"), nil, 400, []string{"/payload/a/b json_duplicate_key"}},
		"payload of 257 KiB":       {with(t, `"`+strings.Repeat("x", 257<<10)+`"`, "payload"), nil, 413, []string{"/payload payload_too_large"}},
		"payload of depth 33":      {with(t, nested(33), "payload"), nil, 400, []string{"/payload json_depth"}},
		"payload of depth 20000":   {`{"payload":` + nested(20_000) + `}`, nil, 400, []string{" json_depth"}},
		"a body of 1 MiB and more": {with(t, `"`+strings.Repeat("x", 1<<20)+`"`, "payload"), nil, 413, []string{" payload_too_large"}},
		"200 headers": {with(t, string(manyHeaders), "target", "webhook", "headers"), nil, 422,
			[]string{"/target/webhook/headers header_size"}},
		"200 triggers": {with(t, string(manyTriggers), "triggers"), nil, 422, []string{"/triggers too_many"}},
		"headers that differ in case": {
			with(t, `{"X-Key":"a","x-key":"b"}`, "target", "webhook", "headers"), nil, 422,
			[]string{"/target/webhook/headers/x-key header_name"},
		},
		"start after end": {
			with(t, `{"expression":"0 0 2 * * ?","timezone":"UTC",
				"start_at":"2030-01-02T00:00:00Z","end_at":"2030-01-01T00:00:00Z"}`, "triggers", "nightly"),
			nil, 422, []string{"/triggers/nightly/start_at window_order"},
		},
		"six secrets to sign by": {
			with(t, `{"a":{},"b":{},"c":{},"d":{},"e":{},"f":{}}`, "target", "webhook", "signing", "secrets"), nil, 422,
			[]string{"/target/webhook/signing/secrets too_many"},
		},
		"invalid success codes": {
			with(t, `["200","299.5","6xx","2XX","",99]`, "target", "webhook", "success_codes"), nil, 400,
			[]string{
				"/target/webhook/success_codes/1 status_code", "/target/webhook/success_codes/2 status_code",
				"/target/webhook/success_codes/3 status_code",
				"/target/webhook/success_codes/4 status_code", "/target/webhook/success_codes/5 json_type",
			},
		},
		"a client certificate without a key": {
			with(t, `{"client_certificate":"x"}`, "target", "webhook", "tls"), nil, 422,
			[]string{"/target/webhook/tls tls_certificate", "/target/webhook/tls/client_certificate tls_certificate"},
		},
		"basic auth with everything wrong": {
			with(t, `{"basic":{"username":"a:b","password":{"value":"hunter2\r"}},"bearer":{"token":{"stored":true}}}`,
				"target", "webhook", "auth"), nil, 422,
			[]string{"/target/webhook/auth auth_form", "/target/webhook/auth/basic/password/value header_value",
				"/target/webhook/auth/basic/username text_invalid"},
		},
		"api keys that cannot be sent": {
			with(t, `{"header":"Webhook-Id","query":"a b","key":{"reference":"env:SECRET_X"}}`, "target", "webhook", "auth", "api_key"), nil, 422,
			[]string{"/target/webhook/auth/api_key auth_form"},
		},
		"a reserved api key": {
			with(t, `{"header":"Webhook-Id","key":{"reference":"env:SECRET_X"}}`, "target", "webhook", "auth", "api_key"), nil, 422,
			[]string{"/target/webhook/auth/api_key/header header_reserved"},
		},
		"a parameter that the URL has already": {
			with(t, `{"url":"https://example.com/?key=1","auth":{"api_key":{"query":"key","key":{"reference":"env:SECRET_X"}}}}`,
				"target", "webhook"), nil, 422,
			[]string{"/target/webhook/auth/api_key/query auth_form"},
		},
		"sigv4 with everything wrong": {
			with(t, `{"service":"","region":"eu/1","credentials":{"access_key_id":"secret","secret_access_key":{}}}`, "target",
				"webhook", "auth", "sigv4"), nil, 422,
			[]string{
				"/target/webhook/auth/sigv4/credentials/access_key_id text_invalid",
				"/target/webhook/auth/sigv4/credentials/secret_access_key required",
				"/target/webhook/auth/sigv4/region text_invalid", "/target/webhook/auth/sigv4/service text_invalid",
			},
		},
		"two kinds of auth": {
			with(t, `{"url":"https://example.com/","headers":{"authorization":"x","X-Amz-Date":"x"},`+
				`"auth":{"bearer":{"token":{"reference":"env:SECRET_X"}}}}`,
				"target", "webhook"), nil, 422,
			[]string{"/target/webhook/headers/authorization header_reserved"},
		},
		"a value and no key to store it": {
			with(t, `{"token":{"value":"hunter2"}}`, "target", "webhook", "auth", "bearer"), nil, 422,
			[]string{"/target/webhook/auth/bearer/token/value secret_keys"},
		},
		"a kept value that does not exist": {
			with(t, `{"token":{"stored":true}}`, "target", "webhook", "auth", "bearer"), nil, 422,
			[]string{"/target/webhook/auth/bearer/token/stored secret_missing"},
		},
		"a structured event without a body": {
			with(t, `{"url":"https://example.com/","method":"GET","cloud_events":"structured"}`, "target", "webhook"), nil, 422,
			[]string{"/target/webhook/cloud_events body_method"},
		},
		"headers that the event has": {
			with(t, `{"url":"https://example.com/","cloud_events":"structured","headers":{"ce-id":"x","Content-Type":"text/plain"}}`,
				"target", "webhook"), nil, 422,
			[]string{"/target/webhook/headers/Content-Type header_reserved", "/target/webhook/headers/ce-id header_reserved"},
		},
		"plain text":       {validJob, []string{"Content-Type: text/plain"}, 415, []string{" media_type"}},
		"no media type":    {validJob, []string{"Content-Type:"}, 415, []string{" media_type"}},
		"a form":           {"a=b", []string{"Content-Type: application/x-www-form-urlencoded"}, 415, []string{" media_type"}},
		"another charset":  {validJob, []string{"Content-Type: application/json; charset=latin1"}, 415, []string{" media_type"}},
		"a compressed one": {validJob, []string{"Content-Encoding: gzip"}, 415, []string{" media_type"}},
		"everything at once": {
			`{"Enabled":true,"description":7,"target":{"webhook":{"url":"ftp://x/#f","timeout":"5","headers":{"Host":"x"}}},` +
				`"payload":{"a":1,"a":2},"triggers":{"A":{"expression":"* * * *","timezone":"Mars/Olympus"},"b":{"expression":5}}}`,
			nil, 400, []string{
				"/Enabled json_unknown_field", "/description json_type", "/target/webhook/url url_scheme", "/target/webhook/url url_fragment",
				"/target/webhook/timeout duration_unit", "/target/webhook/headers/Host header_reserved", "/payload/a json_duplicate_key",
				"/triggers/A name_format", "/triggers/A/expression cron_fields", "/triggers/A/timezone tz_unknown", "/triggers/b/expression json_type",
			},
		},
	} {
		w.do("PUT", oneJob, tt.body, tt.headers...).refused(tt.status, tt.problems...)
	}
	if diff := cmp.Diff(before, w.must(http.StatusOK, "GET", oneJob, "").Body.String()); diff != "" {
		t.Errorf("the job changed although everything was refused (-before +after):\n%s", diff)
	}
}

func TestUnknownNamesGetASuggestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for body, want := range map[string]string{
		with(t, `"x"`, "Name"):                                           "did you mean name?",
		with(t, `"5m"`, "triggers", "nightly", "misfireAfter"):           "did you mean misfire_after?",
		with(t, `"a"`, "target", "webhook", "uri"):                       "did you mean url?",
		with(t, `"america/new_york"`, "triggers", "nightly", "timezone"): "America/New_York",
		with(t, `"5"`, "target", "webhook", "timeout"):                   "end it with s",
	} {
		if got := w.do("PUT", oneJob, body).Body.String(); !strings.Contains(got, want) {
			t.Errorf("PUT %s = %s, want a hint %q", body, got, want)
		}
	}
	if got := w.do("GET", "/v1/apps?limt=5", "").Body.String(); !strings.Contains(got, "did you mean limit?") {
		t.Errorf("?limt=5 returns %s, want a hint at limit", got)
	}
}

func TestProblemListIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	var b strings.Builder
	b.WriteString(`{"enabled":true`)
	for i := range 50_000 {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	got := w.do("PUT", oneApp, b.String()+"}")
	if problems := got.problems(); len(problems) != 101 || problems[100] != " too_many" || got.Code != http.StatusBadRequest {
		t.Errorf("50000 unknown fields return %d with %d problems, want 400 with 100 and one that says so", got.Code, len(problems))
	}
}

func TestWarningDoesNotRefuseTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	body := strings.Replace(with(t, `"GET"`, "target", "webhook", "method"), `{`, `{"payload":{"a":1},`, 1)
	got := w.must(http.StatusOK, "PUT", oneJob, body)
	job := into[struct{ Warnings []struct{ Path, Code string } }](got)
	if len(job.Warnings) != 1 || job.Warnings[0].Path != "/payload" || job.Warnings[0].Code != "body_method" {
		t.Errorf("payload with GET returns %s, want the warning body_method", got.Body)
	}
}
