package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
)

func TestFunctionInAnotherRegionIsStoredWithAWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Region: "eu-central-1"})
	w.must(http.StatusCreated, "PUT", oneApp, `{"bounds":{"lambda":{"functions":["*"]}}}`)
	body := `{"target":{"lambda":{"function":"arn:aws:lambda:eu-west-1:123456789012:function:f"}}}`
	for _, got := range []reply{w.must(http.StatusCreated, "PUT", oneJob, body), w.must(http.StatusOK, "GET", oneJob, "")} {
		if job := into[dispatcher.Job](got); len(job.Warnings) != 1 || job.Warnings[0].Code != "lambda_region" {
			t.Errorf("warnings are %v, want lambda_region", job.Warnings)
		}
	}
}

func TestTextThatCannotBeStoredIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for _, keys := range [][]string{
		{"payload"}, {"payload", "a", "b"}, {"target", "webhook", "body"}, {"target", "webhook", "expect_body"},
		{"target", "webhook", "headers", "x-key"}, {"target", "webhook", "tls", "server_name"}, {"description"},
		{"node_labels", "zone"}, {"triggers", "nightly", "calendar"},
	} {
		path := "/" + strings.Join(keys, "/")
		for literal, want := range map[string]string{`"a\u0000b"`: "string_nul", `"a\ud800b"`: "json_utf8"} {
			got := w.do("PUT", oneJob, with(t, literal, keys...))
			if !slices.Contains(got.problems(), path+" "+want) || got.Code/100 != 4 {
				t.Errorf("%s at %s: status %d with %v, want %s", literal, path, got.Code, got.problems(), want)
			}
		}
	}
	const tags = `{"k":"\u0000","\ud800":"v"}`
	const role = `{"role_arn":"arn:aws:iam::123456789012:role/r","session_tags":` + tags + `}`
	w.do("PUT", oneJob, `{"target":{"lambda":{"function":"f","assume_role":`+role+`}}}`).refused(http.StatusBadRequest,
		"/target/lambda/assume_role/session_tags/k string_nul", "/target/lambda/assume_role/session_tags/k label_format",
		"/target/lambda/assume_role/session_tags/\ufffd json_utf8")
	for _, target := range []string{oneApp, "/v1/apps/crm/calendars/c"} {
		w.do("PUT", target, `{"description":"\ud800"}`).refused(http.StatusBadRequest, "/description json_utf8")
	}
	w.do("POST", "/v1/schedules/preview", `{"expression":"* * * * *","timezone":"UTC","identity":"\udc00"}`).
		refused(http.StatusBadRequest, "/identity json_utf8")
	whole := into[dispatcher.Job](w.must(http.StatusOK, "PUT", oneJob, with(t, `"\ud83d\ude00"`, "description")))
	if whole.Description != "\U0001f600" {
		t.Errorf("a whole pair is stored as %q", whole.Description)
	}
}
