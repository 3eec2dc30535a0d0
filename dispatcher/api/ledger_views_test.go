package api_test

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

func TestStripTimelineAndStatistics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	strip := oneJob + "/triggers/nightly/strip"
	found := into[view.Strip](w.must(http.StatusOK, "GET", strip+"?next=3", ""))
	if len(found.Cells) != 3 || found.Cells[0].What != view.CellPlanned || found.Trigger != "nightly" || found.Now.IsZero() {
		t.Errorf("strip is %+v, want three planned fires", found)
	}
	w.do("GET", strip+"?past=201", "").refused(400, "/past page_limit")
	w.do("GET", strip+"?next=-1", "").refused(400, "/next page_limit")
	w.do("GET", oneJob+"/triggers/nosuch/strip", "").refused(404, " not_found")

	run := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	line := into[view.Timeline](w.must(http.StatusOK, "GET", oneApp+"/timeline", ""))
	if len(line.Items) != 1 || line.Items[0].Job != "sync" || len(line.Items[0].Marks) == 0 || line.Items[0].Marks[0].Run != run.ID {
		t.Errorf("timeline is %+v, want the run", line)
	}
	w.do("GET", oneApp+"/timeline?from=2026-05-01T00:00:00Z&to=2026-05-04T00:00:00Z", "").refused(422, "/to duration_max")
	w.do("GET", oneApp+"/timeline?limit=51", "").refused(400, "/limit page_limit")
	w.do("GET", oneApp+"/timeline?job=nosuch", "").refused(404, " not_found")
	days := into[view.Statistics](w.must(http.StatusOK, "GET", "/v1/statistics?app=crm", ""))
	if days.Days == nil || len(days.Days) != 0 {
		t.Errorf("statistics are %+v, want none yet", days)
	}
	w.do("GET", "/v1/statistics?from=2026-05-02T00:00:00Z&to=2026-05-01T00:00:00Z", "").refused(422, "/from window_order")
	w.do("GET", "/v1/statistics?app=nosuch", "").refused(404, " not_found")
}

func TestRunsOfAllAppsAreSearched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.register(t.Context(), 7)
	w.failRuns("sync", 2, run.ClassHTTP5xx)
	w.must(http.StatusCreated, "PUT", "/v1/apps/bank", `{}`)
	one := into[struct{ Items []run.Run }](w.must(http.StatusOK, "GET", "/v1/runs", "")).Items[0]
	bound := w.newToken("bound", []access.Scope{access.ScopeRead}, "bank")
	for query, want := range map[string]int{
		"": 2, "?app=crm": 2, "?app=bank": 0, "?class=http_5xx": 2, "?class=tls": 0, "?state=failed": 2, "?kind=manual": 2, "?kind=alert": 0,
		"?node=0000000000000007": 2, "?node=0000000000000008": 0, "?id=" + one.EventID: 1, "?id=" + one.TraceID: 1, "?job=sync": 2,
		"?error=nosuch": 0, "?label=team=x": 0,
	} {
		if got := into[struct{ Items []run.Run }](w.must(http.StatusOK, "GET", "/v1/runs"+query, "")).Items; len(got) != want {
			t.Errorf("GET /v1/runs%s has %d runs, want %d", query, len(got), want)
		}
	}
	if got := w.must(http.StatusOK, "GET", "/v1/runs", "", "Authorization: Bearer "+bound).Body.String(); strings.Contains(got, "crm") {
		t.Errorf("a token of another app sees %s", got)
	}
	for query, want := range map[string]string{
		"?kind=x": "/kind enum", "?class=x": "/class enum", "?error=": "/error text_invalid", "?job=sync&trigger=T": "/trigger name_format",
	} {
		w.do("GET", "/v1/runs"+query, "").refused(422, want)
	}
}

func TestRequestOfADeliveryIsThatOfItsAlertOrJob(t *testing.T) {
	t.Parallel()
	invoker := invoke.New(invoke.Options{})
	defer invoker.Close()
	w := newWorld(t, api.Options{Requests: invoker})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.must(http.StatusCreated, "PUT", oneApp+"/alerts/on-call", `{"failure":{"after":1},"destination":{"webhook":{
		"url":"https://chat.example.com/x",
		"format":"slack"}}}`)
	tested := into[run.Run](w.must(http.StatusAccepted, "POST", oneApp+"/alerts/on-call/test", ""))
	shown := into[target.ShownRequest](w.must(http.StatusOK, "GET", "/v1/runs/"+tested.ID+"/request", ""))
	if shown.URL != "https://chat.example.com/x" || !strings.Contains(shown.Body, `"attachments"`) || shown.Problem != "" {
		t.Errorf("the request of a notification is %+v, want one to https://chat.example.com/x in the format of Slack", shown)
	}
	w.must(http.StatusNoContent, "DELETE", oneApp+"/alerts/on-call", "", `If-Match: "1"`)
	w.do("GET", "/v1/runs/"+tested.ID+"/request", "").refused(http.StatusConflict, " state_conflict")
}

// canary is part of every secret of the following targets.
const canary = "canary-in-the-coal-mine"

func TestRequestOfRunIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	invoker := invoke.New(invoke.Options{CallbackURL: "https://carillon.example.com"})
	defer invoker.Close()
	keys, err := seal.Parse(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOver(t, api.Options{Requests: invoker, Callbacks: true}, store.Options{Keys: keys})
	w.must(http.StatusCreated, "PUT", oneApp, `{"bounds":{"lambda":{"functions":["*"]},"sqs":{"queues":["*"]},"sns":{"topics":["*"]}}}`)
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm/groups/workers", `{"endpoints":{"a":{"url":"https://a.example.com"}},
		"auth":{"bearer":{"token":{"value":"`+canary+`"}}}}`)
	signing := `"signing":{"secrets":{"primary":{"value":"whsec_Y2FuYXJ5LWluLXRoZS1jb2FsLW1pbmUhIQ=="}}}`
	for name, tt := range map[string]struct {
		target string
		wants  []string // in the response
	}{
		"bearer": {`{"webhook":{"url":"https://example.com/{{.Job}}","headers":{"X-Run":"{{.Kind}}","Cookie":"` + canary + `"},` + signing + `,
			"auth":{"bearer":{"token":{"value":"` + canary + `"}}}}}`,
			[]string{`https://example.com/bearer`, `"manual"`, `Bearer [masked]`, `v1,[masked]`, "signature by secret primary", "header Cookie"}},
		"basic": {`{"webhook":{"url":"https://example.com/","auth":{"basic":{"username":"ann","password":{"value":"` + canary + `"}}}}}`,
			[]string{`Basic [masked]`, "auth basic password"}},
		"apikey": {`{"webhook":{"url":"https://example.com/?a=b","auth":{"api_key":{"query":"key","key":{"value":"` + canary + `"}}}}}`,
			[]string{`?a=b&key=[masked]`}},
		"keyheader": {`{"webhook":{"url":"https://example.com/","auth":{"api_key":{"header":"x-shop-key","key":{"value":"` + canary + `"}}}}}`,
			[]string{`{"name":"X-Shop-Key","value":"[masked]","masked":true}`}},
		"sigv4": {`{"webhook":{"url":"https://example.com/","auth":{"sigv4":{"service":"lambda","region":"eu-west-1","credentials":
			{"access_key_id":"AKIAEXAMPLEEXAMPLE","secret_access_key":{"value":"` + canary + `"}}}}}}`, []string{"AWS4-HMAC-SHA256 [masked]"}},
		"oauth2": {`{"webhook":{"url":"https://example.com/","auth":{"oauth2":{"token_url":"https://issuer.example.com/token","client_id":"c",
			"client_secret":{"value":"` + canary + `"}}}}}`, []string{"Bearer [masked]"}},
		"callback": {`{"webhook":{"url":"https://example.com/","callback":{},"body":"token={{.CallbackToken}}"}}`,
			[]string{`https://carillon.example.com/v1/runs/`, "token=[masked]",
				`{"name":"Carillon-Callback-Token","value":"[masked]","masked":true}`}},
		"group":  {`{"group":{"name":"workers","path":"/do"}}`, []string{"ENDPOINT/do", "Bearer [masked]"}},
		"lambda": {`{"lambda":{"function":"report","region":"eu-west-1"}}`, []string{`"function":"report"`, `\"job\":\"lambda\"`}},
		"sqs": {`{"sqs":{"queue_arn":"arn:aws:sqs:eu-west-1:123456789012:work.fifo","body":"{{.Job}}"}}`,
			[]string{`"queue":"arn:aws:sqs:eu-west-1:123456789012:work.fifo"`, `"body":"sqs"`, `"message_group_id":"crm/sqs"`}},
		"sns": {`{"sns":{"topic_arn":"arn:aws:sns:eu-west-1:123456789012:news","subject":"about {{.Job}}"}}`, []string{`"subject":"about sns"`}},
	} {
		w.must(http.StatusCreated, "PUT", "/v1/apps/crm/jobs/"+name, `{"target":`+tt.target+`,"triggers":{}}`)
		run := into[run.Run](w.must(http.StatusAccepted, "POST", "/v1/apps/crm/jobs/"+name+"/run", ""))
		text := w.must(http.StatusOK, "GET", "/v1/runs/"+run.ID+"/request", "").Body.String()
		shown := into[target.ShownRequest](w.must(http.StatusOK, "GET", "/v1/runs/"+run.ID+"/request", ""))
		if shown.Problem != "" || shown.Run != run.ID || shown.Attempt != 1 || shown.Revision != 1 || shown.RunRevision != 1 {
			t.Errorf("%s: got %+v, want the request of attempt 1 by revision 1", name, shown)
		}
		for _, want := range tt.wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing in %s", name, want, text)
			}
		}
		if strings.Contains(text, "canary") || strings.Contains(text, "Y2FuYXJ5") {
			t.Errorf("%s: a secret is shown: %s", name, text)
		}
		masked := slices.ContainsFunc(shown.Headers, func(h target.ShownHeader) bool { return h.Masked }) ||
			strings.Contains(shown.URL, target.Mask)
		if masked != (len(shown.Masked) > 0) {
			t.Errorf("%s: masked are %q, and the headers %+v", name, shown.Masked, shown.Headers)
		}
	}
}
