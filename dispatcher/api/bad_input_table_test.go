package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/badinput"
)

// tableWorld allows the functions, queues and topics of the table, and has the region of a node.
func tableWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, api.Options{Region: "eu-central-1"})
	w.must(http.StatusCreated, "PUT", oneApp, `{"bounds":{"lambda":{"functions":["*"],"roles":["*"]},
		"sqs":{"queues":["*"]},"sns":{"topics":["*"]}}}`)
	w.must(http.StatusCreated, "PUT", oneJob, validJob)
	return w
}

// jobOf returns a job that is valid except for the value of a row.
func jobOf(t *testing.T, row badinput.Row) string {
	t.Helper()
	value, err := row.JSON()
	if err != nil {
		t.Fatal(err)
	}
	body := with(t, string(value), strings.Split(row.Where[1:], "/")...)
	kind, _, _ := strings.Cut(strings.TrimPrefix(row.Where, "/target/"), "/")
	resource := map[string][2]string{
		"lambda": {"function", "f"}, "sqs": {"queue_arn", "arn:aws:sqs:eu-central-1:123456789012:q"},
		"sns": {"topic_arn", "arn:aws:sns:eu-central-1:123456789012:t"},
	}[kind]
	if resource[0] == "" {
		return body
	}
	var job struct {
		Target map[string]map[string]any `json:"target"`
	}
	if err := json.Unmarshal([]byte(body), &job); err != nil {
		t.Fatal(err)
	}
	of := job.Target[kind]
	if of[resource[0]] == nil {
		of[resource[0]] = resource[1]
	}
	if role, ok := of["assume_role"].(map[string]any); ok {
		role["role_arn"] = "arn:aws:iam::123456789012:role/r"
	}
	text, _ := json.Marshal(map[string]any{"target": map[string]any{kind: of}})
	return string(text)
}

func tableRows(t *testing.T, place badinput.Place) []badinput.Row {
	t.Helper()
	rows, err := badinput.Rows(place)
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows of %s, %v", len(rows), place, err)
	}
	return rows
}

func TestRowsOfBadInputsAreRefused(t *testing.T) {
	t.Parallel()
	w := tableWorld(t)
	for _, row := range tableRows(t, badinput.API) {
		got := w.do("PUT", oneJob, jobOf(t, row))
		if code, at := row.Code(); got.Code/100 != 4 || !slices.Contains(got.problems(), at+" "+code) {
			t.Errorf("rows.md:%d: status %d with %v, want %s at %s", row.Line, got.Code, got.problems(), code, at)
		}
	}
}

func TestRowsOfOddInputsGiveWarnings(t *testing.T) {
	t.Parallel()
	w := tableWorld(t)
	for _, row := range tableRows(t, badinput.Warning) {
		got := w.must(http.StatusOK, "PUT", oneJob, jobOf(t, row))
		code, at := row.Code()
		if warnings := into[dispatcher.Job](got).Warnings; !slices.ContainsFunc(warnings, func(p input.Problem) bool {
			return p.Code == code && p.Path == at
		}) {
			t.Errorf("rows.md:%d: warnings %v, want %s at %s", row.Line, warnings, code, at)
		}
	}
}

func TestRowsOfBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	w := tableWorld(t)
	for _, row := range tableRows(t, badinput.Request) {
		method, rest, _ := strings.Cut(row.Where, " ")
		path, header, named := strings.Cut(rest, " ")
		var headers []string
		if named {
			headers = []string{header}
		}
		body := row.Input
		if body == "-" {
			body = ""
		}
		status, code, _ := strings.Cut(row.Expected, " ")
		got := w.do(method, path, body, headers...)
		if strconv.Itoa(got.Code) != status ||
			!slices.ContainsFunc(got.problems(), func(p string) bool { return strings.HasSuffix(p, " "+code) }) {
			t.Errorf("rows.md:%d: status %d with %v, want %s", row.Line, got.Code, got.problems(), row.Expected)
		}
	}
}
