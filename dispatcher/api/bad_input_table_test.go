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
	"github.com/carillon-dev/carillon/test/badinput"
)

// tableWorld allows the functions of the table, and has the region of a node.
func tableWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, api.Options{Region: "eu-central-1"})
	w.must(http.StatusCreated, "PUT", oneApp, `{"bounds":{"lambda":{"functions":["*"],"roles":["*"]}}}`)
	w.must(http.StatusCreated, "PUT", oneJob, validJob)
	return w
}

// jobOf returns a job that is valid but for the value of a row.
func jobOf(t *testing.T, row badinput.Row) string {
	t.Helper()
	value, err := row.JSON()
	if err != nil {
		t.Fatal(err)
	}
	body := with(t, string(value), strings.Split(row.Where[1:], "/")...)
	if !strings.HasPrefix(row.Where, "/target/lambda/") {
		return body
	}
	var job struct {
		Target struct {
			Lambda map[string]any `json:"lambda"`
		} `json:"target"`
	}
	if err := json.Unmarshal([]byte(body), &job); err != nil {
		t.Fatal(err)
	}
	if job.Target.Lambda["function"] == nil {
		job.Target.Lambda["function"] = "f"
	}
	if role, ok := job.Target.Lambda["assume_role"].(map[string]any); ok {
		role["role_arn"] = "arn:aws:iam::123456789012:role/r"
	}
	text, _ := json.Marshal(job)
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

func TestRowsOfOddInputsAreWarnedOf(t *testing.T) {
	t.Parallel()
	w := tableWorld(t)
	for _, row := range tableRows(t, badinput.Warning) {
		got := w.must(http.StatusOK, "PUT", oneJob, jobOf(t, row))
		code, at := row.Code()
		if warnings := into[dispatcher.Job](got).Warnings; !slices.ContainsFunc(warnings, func(p dispatcher.Problem) bool {
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
