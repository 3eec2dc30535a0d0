package api_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	executorGroup = "/v1/apps/crm/groups/billing"
	executorBase  = "/xxl-job/crm/billing/api"
	executorToken = "XXL-JOB-ACCESS-TOKEN: token-of-executors"
	validXXLGroup = `{"kind":"xxl_job","app_name":"billing-executor","access_token":{"reference":"file:crm/token"},
		"registration":{"networks":["10.0.0.0/8"],"ports":[9999]}}`
	jobOfExecutors = `{"target":{"group":{"name":"billing","xxl_job":{"handler":"demoJobHandler"}}}}`
)

// newExecutorWorld is a world with a node that has the token of a group of executors.
func newExecutorWorld(t *testing.T, limits gate.Limits) *world {
	t.Helper()
	w := newWorld(t, api.Options{Executors: newExecutors(t), Limits: limits})
	w.declare()
	w.must(http.StatusCreated, "PUT", executorGroup, validXXLGroup)
	return w
}

// newExecutors asks executors, and has the token of their group.
func newExecutors(t *testing.T, names ...netip.AddrPort) *invoke.Invoker {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "crm"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "crm", "token"), []byte("token-of-executors\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := invoke.New(invoke.Options{SecretDir: dir, Egress: web.Egress{Loopback: true}, NameServers: names})
	t.Cleanup(i.Close)
	return i
}

// executor makes a request like an executor, and returns code and message.
func (w *world) executor(path, body string, headers ...string) (code int, msg string) {
	w.t.Helper()
	admin := w.token
	w.token = ""
	defer func() { w.token = admin }()
	got := w.must(http.StatusOK, "POST", path, body, append(headers, "Content-Type: application/json;charset=UTF-8")...)
	var reply struct {
		Code int    `json:"code"`
		Msg  string `json:"msg"`
	}
	if err := json.Unmarshal(got.Body.Bytes(), &reply); err != nil {
		w.t.Errorf("%s: body %q", path, got.Body)
	}
	return reply.Code, reply.Msg
}

func registryOf(url string) string {
	return `{"registryGroup":"EXECUTOR","registryKey":"billing-executor","registryValue":"` + url + `","new":1}`
}

func TestExecutorsNeedAClientCertificateToo(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{})
	w.api = api.New(w.store, api.Options{
		Executors: newExecutors(t), ClientCertificates: true, Logger: slog.New(slog.NewTextHandler(w.logs, nil)),
	})
	for _, path := range []string{"/registry", "/registryRemove", "/callback"} {
		code, msg := w.executor(executorBase+path, registryOf("http://10.0.3.17:9999/"), executorToken)
		if code != 500 || !strings.Contains(msg, "a client certificate") {
			t.Errorf("%s: %d %s, want a demand for a client certificate", path, code, msg)
		}
	}
	if !strings.Contains(w.logs.String(), "request without a valid token") {
		t.Errorf("log: %s, want the requests to count as unauthorized", w.logs)
	}
}

func TestUnreadableAccessTokenRespondsLikeAWrongOne(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{BadTokens: 30})
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm/groups/unread", strings.Replace(validXXLGroup, "crm/token", "crm/missing", 1))
	answer := func(group string) string {
		code, msg := w.executor("/xxl-job/crm/"+group+"/api/callback", `[]`, executorToken)
		return fmt.Sprint(code, " ", msg)
	}
	wrong := answer("nosuch")
	for range 29 {
		if got := answer("unread"); got != wrong {
			t.Fatalf("response: %s, want that of a wrong token: %s", got, wrong)
		}
	}
	if got := answer("unread"); !strings.Contains(got, "without a valid token") {
		t.Errorf("response: %s, want the requests to count as those without a valid token", got)
	}
	if got := strings.Count(w.logs.String(), "access token of a group cannot be read"); got != 10 {
		t.Errorf("log has %d lines about it, want 10 in a minute", got)
	}
}

func TestExecutorsRegisterAndLeave(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{})
	ids := func() (all []string) {
		for _, e := range into[page[target.Endpoint]](w.must(http.StatusOK, "GET", executorGroup+"/endpoints", "")).Items {
			all = append(all, e.ID+" "+e.URL)
		}
		return all
	}
	for _, url := range []string{"http://10.0.3.17:9999/", "http://10.0.3.18:9999/", "http://10.0.3.17:9999/"} {
		if code, msg := w.executor(executorBase+"/registry", registryOf(url), executorToken); code != 200 || msg != "" {
			t.Errorf("register %s: %d %s", url, code, msg)
		}
	}
	if got := ids(); strings.Join(got, ", ") != "10-0-3-17-9999 http://10.0.3.17:9999/, 10-0-3-18-9999 http://10.0.3.18:9999/" {
		t.Errorf("executors = %v", got)
	}
	for range 2 { // it may deregister again
		if code, msg := w.executor(executorBase+"/registryRemove", registryOf("http://10.0.3.17:9999/"), executorToken); code != 200 {
			t.Errorf("leave: %d %s", code, msg)
		}
	}
	if got := ids(); len(got) != 1 {
		t.Errorf("executors = %v, want one to have left", got)
	}
}

func TestRegistrationsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{BadTokens: 1000})
	w.must(http.StatusCreated, "PUT", oneGroup, validGroup)
	valid := registryOf("http://10.0.3.17:9999/")
	const wrong = "access token is wrong, or no group"
	for name, tt := range map[string]struct{ path, body, token, says string }{
		"wrong token":   {executorBase + "/registry", valid, executorToken + "x", wrong},
		"no token":      {executorBase + "/registry", valid, "X-A: b", wrong},
		"empty token":   {executorBase + "/registry", valid, "XXL-JOB-ACCESS-TOKEN: ", wrong},
		"no such group": {"/xxl-job/crm/nosuch/api/registry", valid, executorToken, wrong},
		"no such app":   {"/xxl-job/nosuch/billing/api/registry", valid, executorToken, wrong},
		"no name":       {"/xxl-job/crm/%00/api/registry", valid, executorToken, wrong},
		"group of web":  {"/xxl-job/crm/workers/api/registry", valid, executorToken, wrong},
		"callback":      {executorBase + "/callback", `[]`, executorToken + "x", wrong},
		"another AppName": {executorBase + "/registry", strings.Replace(valid, "billing-executor", "other", 1), executorToken,
			"is not the AppName"},
		"not an executor":    {executorBase + "/registry", strings.Replace(valid, "EXECUTOR", "ADMIN", 1), executorToken, "is not EXECUTOR"},
		"another network":    {executorBase + "/registry", registryOf("http://192.168.3.17:9999/"), executorToken, "registration.networks"},
		"another port":       {executorBase + "/registry", registryOf("http://10.0.3.17:22/"), executorToken, "registration.ports"},
		"no URL":             {executorBase + "/registry", registryOf("10.0.3.17:9999"), executorToken, "URL"},
		"metadata":           {executorBase + "/registry", registryOf("http://169.254.169.254:9999/"), executorToken, "never"},
		"no JSON":            {executorBase + "/registry", `registryGroup`, executorToken, "not the JSON"},
		"a list":             {executorBase + "/registry", `[]`, executorToken, "not the JSON"},
		"too much":           {executorBase + "/registry", `"` + strings.Repeat("x", 1<<20) + `"`, executorToken, "larger than"},
		"a token of the API": {executorBase + "/registry", valid, "XXL-JOB-ACCESS-TOKEN: " + w.token, wrong},
	} {
		if code, msg := w.executor(tt.path, tt.body, tt.token); code != 500 || !strings.Contains(msg, tt.says) {
			t.Errorf("%s: %d %s, want 500 saying %q", name, code, msg, tt.says)
		}
	}
	if logs := w.logs.String(); strings.Contains(logs, "token-of-executors") {
		t.Error("the access token is in the log")
	}
	w.must(http.StatusOK, "PUT", executorGroup, strings.Split(validXXLGroup, `,
		"registration"`)[0]+"}")
	code, msg := w.executor(executorBase+"/registry", valid, executorToken)
	if code != 500 || !strings.Contains(msg, "takes no registrations") {
		t.Errorf("without registration: %d %s", code, msg)
	}
}

func TestGuessedAccessTokensAreLimited(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{BadTokens: 3})
	valid := registryOf("http://10.0.3.17:9999/")
	if code, msg := w.executor(executorBase+"/registry", valid, executorToken); code != 200 {
		t.Fatalf("register: %d %s", code, msg)
	}
	for range 3 {
		w.executor(executorBase+"/registry", valid, executorToken+"x")
	}
	code, msg := w.executor(executorBase+"/registry", valid, executorToken+"y")
	if code != 500 || !strings.Contains(msg, "without a valid token") {
		t.Errorf("after wrong ones: %d %s", code, msg)
	}
	if code, msg := w.executor(executorBase+"/registry", valid, executorToken); code != 200 {
		t.Errorf("the right one after wrong ones: %d %s", code, msg)
	}
}

func TestExecutorsOnlyPost(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{})
	w.do("GET", executorBase+"/registry", "", executorToken).refused(405, " method_not_allowed")
}

func TestKindsOfGroupsAndTargetsFit(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{})
	w.must(http.StatusCreated, "PUT", oneGroup, validGroup)
	for body, want := range map[string][]string{
		`{"kind":"quartz"}`:                    {"/kind enum"},
		`{"kind":"http"}`:                      {"/kind group_kind"},
		`{"kind":"xxl_job"}`:                   {"/access_token required"},
		`{"kind":"xxl_job","access_token":{}}`: {"/access_token required"},
		`{"app_name":"x","access_token":{"reference":"file:crm/token"}}`: {"/access_token group_kind", "/app_name group_kind"},
		`{"kind":"xxl_job","app_name":"a b","access_token":{"reference":"file:crm/token"},
			"auth":{"bearer":{"token":{"reference":"file:crm/token"}}},"signing":{"secrets":{"a":{"reference":"file:crm/token"}}}}`: {
			"/app_name text_invalid", "/auth group_kind", "/signing group_kind"},
	} {
		got := w.do("PUT", executorGroup, body)
		got.refused(422, want...)
	}
	w.do("PUT", oneGroup, validXXLGroup).refused(422, "/kind group_kind")
	w.must(http.StatusOK, "PUT", oneJob, jobOfExecutors)
	for target, want := range map[string][]string{
		`{"name":"billing"}`:                           {"/target/group/xxl_job group_kind"},
		`{"name":"workers","xxl_job":{"handler":"h"}}`: {"/target/group/xxl_job group_kind"},
		`{"name":"billing","xxl_job":{}}`:              {"/target/group/xxl_job/handler required"},
		`{"name":"billing","xxl_job":{"handler":"h","param":"{{.Nope}}","blocking":"discard","executor_timeout":"1500ms"}}`: {
			"/target/group/xxl_job/blocking enum", "/target/group/xxl_job/executor_timeout duration_min",
			"/target/group/xxl_job/param template_field"},
		`{"name":"billing","path":"/x","method":"GET","headers":{"a":"b"},"body":"c","success_codes":["200"],"expect_body":"d",
			"cloud_events":"binary","xxl_job":{"handler":"h"}}`: {
			"/target/group/body group_kind", "/target/group/cloud_events group_kind", "/target/group/expect_body group_kind",
			"/target/group/headers group_kind", "/target/group/method group_kind", "/target/group/path group_kind",
			"/target/group/success_codes group_kind"},
	} {
		w.do("PUT", oneJob, `{"target":{"group":`+target+`}}`).refused(422, want...)
	}
}

func TestLogOfARunWithoutExecutorIsRefused(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{})
	run := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	w.do("GET", "/v1/runs/"+run.ID+"/log", "").refused(409, " state_conflict")
	w.do("GET", "/v1/runs/"+run.ID+"/log", "").says("is not one of a group of kind xxl_job")
	w.must(http.StatusOK, "PUT", oneJob, jobOfExecutors)
	w.do("GET", "/v1/runs/"+run.ID+"/log", "").says("no executor is known to have attempt 0")
	w.do("GET", "/v1/runs/"+run.ID+"/log?from_line=0", "").refused(400, "/from_line query_syntax")
	w.do("GET", "/v1/runs/nosuch/log", "").refused(404, " not_found")
}
