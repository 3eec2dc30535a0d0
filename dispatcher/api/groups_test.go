package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	oneGroup    = "/v1/apps/crm/groups/workers"
	oneEndpoint = oneGroup + "/endpoints/w1"
	validGroup  = `{"endpoints":{"static":{"url":"https://workers.example.com/base"}},
		"registration":{"networks":["10.0.0.0/8","fd12::/16"],"ports":[8080]}}`
	jobOfGroup = `{"target":{"group":{"name":"workers","path":"/nightly"}}}`
)

func TestGroupsAreReadAndWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	made := into[target.EndpointGroup](w.must(http.StatusCreated, "PUT", oneGroup, validGroup, "If-None-Match: *"))
	if made.App != "crm" || made.Name != "workers" || made.Strategy != target.RoundRobin || made.Endpoints["static"].Weight != 1 ||
		made.Registration.ExpireAfter != target.DefaultEndpointExpireAfter || made.Probe.Timeout == 0 || made.Revision != 1 {
		t.Errorf("group is %+v, want it resolved", made)
	}
	read := w.must(http.StatusOK, "GET", oneGroup, "")
	if diff := cmp.Diff(made, into[target.EndpointGroup](read)); diff != "" || read.Header().Get("ETag") != `"1"` {
		t.Errorf("GET, ETag %s, differs from what PUT returned (-put +get):\n%s", read.Header().Get("ETag"), diff)
	}
	// The result of GET can be written back, which changes nothing, and edited.
	w.must(http.StatusOK, "PUT", oneGroup, read.Body.String(), `If-Match: "1"`)
	w.must(http.StatusOK, "PUT", oneGroup, strings.Replace(read.Body.String(), "round_robin", "random", 1), `If-Match: "1"`)
	w.do("PUT", oneGroup, validGroup, `If-Match: "1"`).refused(412, " precondition_failed")
	w.do("PUT", oneGroup, validGroup, `If-Match: "1"`).says(`group \"crm/workers\" is at revision 2`)
	w.do("PUT", oneGroup, validGroup, `If-Match: "1"`).says(`changed by \"admin\"`)
	w.do("PUT", oneGroup, validGroup, "If-None-Match: *").refused(412, " name_taken")
	w.once("PUT", oneGroup, validGroup).refused(428, " precondition_required")
	w.must(http.StatusNotModified, "GET", oneGroup, "", `If-None-Match: "2"`)
	w.must(http.StatusOK, "GET", "/v1/apps/crm/groups?limit=1", "").says(`"workers"`)
	w.do("GET", "/v1/apps/crm/groups?cursor=%00", "").refused(400, "/cursor page_cursor")

	w.must(http.StatusOK, "PUT", oneJob, jobOfGroup)
	w.do("DELETE", oneGroup, "").refused(409, " group_in_use")
	w.do("DELETE", oneGroup, "").says("sync")
	w.must(http.StatusNoContent, "DELETE", oneJob, "")
	w.do("DELETE", oneApp, "").refused(409, " app_not_empty")
	w.must(http.StatusNoContent, "DELETE", oneGroup, "", `If-Match: "2"`)
	w.must(http.StatusNoContent, "DELETE", oneApp, "")
	for _, path := range []string{oneGroup, "/v1/apps/%00/groups/workers", "/v1/apps/crm/groups/%00", oneGroup + "/endpoints"} {
		w.do("GET", path, "").refused(404, " not_found")
	}
	w.do("PUT", "/v1/apps/nosuch/groups/g", `{}`).refused(404, " not_found")
	w.do("PUT", "/v1/apps/crm/groups/%00", `{}`).refused(422, "/name name_format")
}

func TestBadGroupReportsAllProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	long := strings.Repeat("x", 3000)
	for body, want := range map[string][]string{
		`{"endpoints":{"A":{"url":""},"b":{"url":"https://u:p@h/?q=1#f","weight":101,"labels":{"a b":"c"}},"c":7}}`: {
			"/endpoints/A name_format", "/endpoints/A/url required", "/endpoints/b/labels/a b label_format", "/endpoints/b/url url_fragment",
			"/endpoints/b/url url_syntax", "/endpoints/b/url url_userinfo", "/endpoints/b/weight count_range", "/endpoints/c json_type"},
		`{"endpoints":{"a":{"url":"https://h/{{.Job}}"}}}`:                            {"/endpoints/a/url template_host"},
		`{"endpoints":{"a":{"url":"http://169.254.169.254/"}}}`:                       {"/endpoints/a/url egress_denied"},
		`{"endpoints":{"a":{"url":"http://0x7f.1/"}}}`:                                {"/endpoints/a/url egress_denied"},
		`{"endpoints":{"a":{"url":"https://h","expires_at":"2030-01-01T00:00:00Z"}}}`: {"/endpoints/a/expires_at json_unknown_field"},
		`{"strategy":"round-robin"}`:                                                  {"/strategy enum"},
		`{"path":"jobs","probe":{"alive_path":"/x?y","idle_path":"z","timeout":"2m"}}`: {
			"/path url_syntax", "/probe/alive_path url_syntax", "/probe/idle_path url_syntax", "/probe/timeout duration_max"},
		`{"path":"/` + long + `","server_name":"a/b"}`: {"/path url_too_long", "/server_name url_host"},
		`{"registration":{}}`: {
			"/registration/networks required", "/registration/ports required"},
		`{"registration":{"networks":["10.0.0.0","10.0.0.1/8","::ffff:10.0.0.0/104","169.254.0.0/16","ten"],"ports":[0,65536]}}`: {
			"/registration/networks/0 network", "/registration/networks/1 network", "/registration/networks/2 network",
			"/registration/networks/3 egress_denied", "/registration/networks/4 network", "/registration/ports/0 count_range",
			"/registration/ports/1 count_range"},
		`{"registration":{"networks":["10.0.0.0/8"],"ports":[80],"heartbeat":"1m"}}`: {
			"/registration/expire_after duration_min"},
		`{"registration":{"networks":["10.0.0.0/8"],"ports":[80],"heartbeat":"1ms","expire_after":"1s"}}`: {
			"/registration/expire_after duration_min", "/registration/heartbeat duration_min"},
		`{"auth":{},"signing":{"secrets":{}},"tls":{"min_version":"1.1"}}`: {
			"/auth auth_form", "/signing/secrets required", "/tls/min_version enum"},
		`{"auth":{"bearer":{"token":{"value":"x"}}}}`: {
			"/auth/bearer/token/value secret_keys"},
		`{"auth":{"bearer":{"token":{"stored":true}}}}`: {
			"/auth/bearer/token/stored secret_missing"},
		`{"auth":{"bearer":{"token":{"reference":"env:SECRET_OTHER_X"}}}}`: {
			"/auth/bearer/token/reference bound_secret"},
		`{"name":"other","app":"other"}`: {
			"/app name_mismatch", "/name name_mismatch"},
	} {
		got := w.do("PUT", oneGroup, body)
		got.refused(got.Code, want...)
		if got.Code != 422 && got.Code != 400 {
			t.Errorf("%.100s: status %d, want 400 or 422", body, got.Code)
		}
	}
	w.do("GET", oneGroup, "").refused(404, " not_found")
	w.do("PUT", oneJob, jobOfGroup).refused(422, "/target/group/name group_unknown")
	for target, want := range map[string]string{
		`{"name":"NO"}`:                            "/target/group/name name_format",
		`{"name":"workers","path":"nightly"}`:      "/target/group/path url_syntax",
		`{"name":"workers","strategy":"everyone"}`: "/target/group/strategy enum",
		`{"name":"workers","url":"https://h"}`:     "/target/group/url json_unknown_field",
	} {
		got := w.do("PUT", oneJob, `{"target":{"group":`+target+`}}`)
		got.refused(got.Code, want)
	}
}

func TestEndpointsRegisterAndLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", oneGroup, validGroup)
	const body = `{"url":"http://10.0.0.1:8080/w","weight":3,"labels":{"zone":"a"}}`
	made := into[target.Endpoint](w.must(http.StatusCreated, "PUT", oneEndpoint, body))
	if made.ID != "w1" || made.Source != target.EndpointRegistered || made.Weight != 3 || made.ExpiresAt == nil ||
		made.ExpiresAt.Sub(made.RegisteredAt) != 90*time.Second {
		t.Errorf("registered endpoint is %+v", made)
	}
	again := w.must(http.StatusOK, "PUT", oneEndpoint, body)
	w.must(http.StatusOK, "PUT", oneEndpoint, again.Body.String())
	w.must(http.StatusCreated, "PUT", oneGroup+"/endpoints/w2", `{"url":"http://worker.internal:8080"}`)
	page1 := into[page[target.Endpoint]](w.must(http.StatusOK, "GET", oneGroup+"/endpoints?limit=2", ""))
	page2 := into[page[target.Endpoint]](w.must(http.StatusOK, "GET", oneGroup+"/endpoints?limit=2&cursor="+page1.Next, ""))
	if len(page1.Items) != 2 || page1.Items[0].ID != "static" || page1.Items[0].ExpiresAt != nil || page1.Next != "w1" ||
		len(page2.Items) != 1 || page2.Items[0].ID != "w2" || page2.Next != "" {
		t.Errorf("pages are %+v and %+v", page1, page2)
	}
	drained := into[target.Endpoint](w.must(http.StatusOK, "POST", oneEndpoint+"/drain", ""))
	resumed := into[target.Endpoint](w.must(http.StatusOK, "POST", oneEndpoint+"/resume", ""))
	if !drained.Draining || resumed.Draining {
		t.Errorf("drained %+v and resumed %+v", drained, resumed)
	}
	w.do("POST", oneGroup+"/endpoints/nosuch/drain", "").refused(404, " not_found")
	w.do("POST", oneGroup+"/endpoints/%00/drain", "").refused(404, " not_found")
	w.do("PUT", oneGroup+"/endpoints/static", body).refused(409, " state_conflict")
	w.do("DELETE", oneGroup+"/endpoints/static", "").refused(404, " not_found")
	w.do("PUT", oneEndpoint, body, `If-Match: "1"`).refused(412, " precondition_failed")
	w.do("PUT", oneEndpoint, `{"id":"w2","url":"http://10.0.0.1:8080"}`).refused(422, "/id name_mismatch")
	w.must(http.StatusNoContent, "DELETE", oneEndpoint, "")
	w.do("DELETE", oneEndpoint, "").refused(404, " not_found")
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm/groups/closed", `{}`)
	w.do("PUT", "/v1/apps/crm/groups/closed/endpoints/a", body).refused(409, " state_conflict")
	w.do("PUT", "/v1/apps/crm/groups/nosuch/endpoints/a", body).refused(404, " not_found")
}

func TestHostileRegistrantsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", oneGroup, validGroup)
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm/groups/wide", `{"registration":{"networks":["0.0.0.0/0","::/0"],"ports":[8080]}}`)
	w.token = w.newToken("registrar", []access.Scope{access.ScopeRegister}, "crm")
	for url, want := range map[string][]string{
		"http://127.0.0.1:8080":                  {"/url egress_denied"},
		"http://127.8.9.10:8080":                 {"/url egress_denied"},
		"http://[::1]:8080":                      {"/url egress_denied"},
		"http://[::ffff:127.0.0.1]:8080":         {"/url egress_denied"},
		"http://localhost:8080":                  {"/url egress_denied"},
		"http://a.localhost.:8080":               {"/url egress_denied"},
		"http://0.0.0.0:8080":                    {"/url egress_denied"},
		"http://169.254.169.254:8080":            {"/url egress_denied"},
		"http://[fd00:ec2::254]:8080":            {"/url egress_denied"},
		"http://[::ffff:169.254.169.254]:8080":   {"/url egress_denied"},
		"http://[64:ff9b::169.254.169.254]:8080": {"/url egress_denied"},
		"http://metadata.google.internal:8080":   {"/url egress_denied"},
		"http://127.1:8080":                      {"/url egress_denied"},
		"http://2130706433:8080":                 {"/url egress_denied"},
		"http://0177.0.0.1:8080":                 {"/url egress_denied"},
		"http://0x7f000001:8080":                 {"/url egress_denied"},
		"http://%31%32%37.0.0.1:8080":            {"/url url_syntax"},
		"http://user:pw@10.0.0.1:8080":           {"/url url_userinfo"},
		"http://10.0.0.1@evil.example:8080":      {"/url url_userinfo"},
		"http://10.0.0.1:8080/?next=":            {"/url url_syntax"},
		"http://10.0.0.1:8080/#x":                {"/url url_fragment"},
		"http://10.0.0.1:8080/{{.Job}}":          {"/url template_host"},
		"http://10.0.0.1:8080/a b":               {"/url url_syntax"},
		"ftp://10.0.0.1:8080":                    {"/url url_scheme"},
		"gopher://10.0.0.1:8080":                 {"/url url_scheme"},
		"http://10.0.0.1:08080":                  {"/url url_port"},
		"http://10.0.0.1:":                       {"/url url_port"},
		"//10.0.0.1:8080":                        {"/url url_host"},
		"http://１０.0.0.1:8080":                   {"/url egress_denied"},
		"":                                       {"/url required"},
	} {
		for _, group := range []string{"workers", "wide"} {
			got := w.do("PUT", "/v1/apps/crm/groups/"+group+"/endpoints/w1", fmt.Sprintf(`{"url":%q}`, url))
			got.refused(http.StatusUnprocessableEntity, want...)
		}
	}
	for _, url := range []string{
		"http://11.0.0.1:8080", "http://[fd13::1]:8080", "http://10.0.0.1", "https://10.0.0.1", "http://10.0.0.1:80",
	} {
		w.do("PUT", oneEndpoint, fmt.Sprintf(`{"url":%q}`, url)).refused(http.StatusUnprocessableEntity, "/url egress_denied")
	}
	w.do("PUT", oneEndpoint, `{"url":"http://10.0.0.1:8080","weight":1000000}`).refused(http.StatusUnprocessableEntity, "/weight count_range")
	w.must(http.StatusCreated, "PUT", oneEndpoint,
		`{"url":"http://10.0.0.1:8080","source":"static","draining":true,"expires_at":"2999-01-01T00:00:00Z"}`)
	read := "Authorization: Bearer " + w.newToken("reader", reads)
	list, now := into[page[target.Endpoint]](w.must(http.StatusOK, "GET", oneGroup+"/endpoints", "", read)).Items, time.Now()
	if len(list) != 2 || list[1].Source != target.EndpointRegistered || list[1].Draining ||
		list[1].ExpiresAt.Sub(now) > 2*time.Minute {
		t.Errorf("endpoints are %+v, want one more, registered, that expires as any", list)
	}
}

func TestScopeRegisterAllowsNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", oneGroup, validGroup)
	w.must(http.StatusCreated, "PUT", "/v1/apps/other", `{}`)
	w.must(http.StatusCreated, "PUT", "/v1/apps/other/groups/workers", validGroup)
	const body = `{"url":"http://10.0.0.1:8080"}`
	w.must(http.StatusCreated, "PUT", oneEndpoint, body, "Authorization: Bearer "+w.newToken("writer", writes))
	w.do("PUT", oneEndpoint, body, "Authorization: Bearer "+w.newToken("reader", reads)).refused(http.StatusForbidden, " forbidden")
	w.do("PUT", oneEndpoint, body, "Authorization: Bearer "+w.newToken("reader2", reads)).says("scope register or write")

	w.token = w.newToken("registrar", []access.Scope{access.ScopeRegister}, "crm")
	w.must(http.StatusOK, "PUT", oneEndpoint, body)
	w.must(http.StatusNoContent, "DELETE", oneEndpoint, "")
	for _, request := range []string{
		"GET /v1/apps", "GET " + oneApp, "PUT " + oneApp, "PATCH " + oneApp, "DELETE " + oneApp, "GET " + oneApp + "/jobs", "PUT " + oneJob,
		"GET " + oneApp + "/groups", "GET " + oneGroup, "PUT " + oneGroup, "DELETE " + oneGroup, "GET " + oneGroup + "/endpoints",
		"POST " + oneEndpoint + "/drain", "POST " + oneEndpoint + "/resume", "GET /v1/tokens", "GET /v1/audit",
		"PUT /v1/apps/other/groups/workers/endpoints/w1", "DELETE /v1/apps/other/groups/workers/endpoints/w1",
	} {
		method, path, _ := strings.Cut(request, " ")
		w.do(method, path, "").refused(http.StatusForbidden, " forbidden")
	}
}

// A registrant with any number of ids fills a group, and nothing more.
func TestEndpointsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	// No endpoint expires during a slow test.
	w.must(http.StatusCreated, "PUT", oneGroup, strings.Replace(validGroup, `"ports":[8080]`, `"ports":[8080],"expire_after":"24h"`, 1))
	taken := 0
	for i := range 2 * target.MaxEndpoints {
		switch got := w.once("PUT", fmt.Sprintf("%s/endpoints/e%d", oneGroup, i), `{"url":"http://10.0.0.1:8080"}`); got.Code {
		case http.StatusCreated:
			taken++
		default:
			got.refused(http.StatusUnprocessableEntity, " too_many")
		}
	}
	if taken != target.MaxEndpoints-1 {
		t.Errorf("%d endpoints registered, want %d next to the declared one", taken, target.MaxEndpoints-1)
	}
	w.must(http.StatusOK, "PUT", oneGroup+"/endpoints/e7", `{"url":"http://10.0.0.2:8080"}`)
}

func TestBoundsOfTheAppHoldForEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusOK, "PUT", oneApp, `{"bounds":{"egress":{"hosts":["*.example.com","10.0.0.1"],"ports":[443,8080]}}}`)
	w.do("PUT", oneGroup, `{"endpoints":{"a":{"url":"https://elsewhere.org"},"b":{"url":"https://b.example.com:444"},
		"c":{"url":"https://c.example.com"}}}`).refused(http.StatusUnprocessableEntity, "/endpoints/a/url bound_egress",
		"/endpoints/b/url bound_egress")
	w.do("PUT", oneGroup, `{"auth":{"sigv4":{"service":"lambda","region":"eu-central-1"}},"endpoints":{"c":{"url":"https://c.example.com"}}}`).
		refused(http.StatusUnprocessableEntity, "/endpoints/c/url bound_signing")
	w.do("PUT", oneGroup, `{"auth":{"oauth2":{"token_url":"https://login.elsewhere.org:444/","client_id":"a",
		"client_secret":{"reference":"env:SECRET_CRM_X"}}},"endpoints":{"c":{"url":"https://c.example.com"}}}`).
		refused(http.StatusUnprocessableEntity, "/auth/oauth2/token_url bound_egress")
	w.must(http.StatusCreated, "PUT", oneGroup, validGroup)
	w.do("PUT", oneEndpoint, `{"url":"http://10.0.0.2:8080"}`).refused(http.StatusUnprocessableEntity, "/url bound_egress")
	w.must(http.StatusCreated, "PUT", oneEndpoint, `{"url":"http://10.0.0.1:8080"}`)
}
