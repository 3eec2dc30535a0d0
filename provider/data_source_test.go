package provider_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

func TestDataSourcesReadRunsAndNodes(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	runs, nodes := "data.carillon_runs.all", "data.carillon_nodes.all"
	read := job(hook+daily) + `
		data "carillon_nodes" "all" {}
		data "carillon_runs" "all" {
		  app     = "crm"
		  job     = "nightly"
		  trigger = "t"
		  state   = "claimed"
		  from    = "2020-01-01T00:00:00+01:00"
		  to      = "2099-01-01T00:00:00Z"
		  limit   = 5
		}
	`
	first := func(attribute string) tfjsonpath.Path {
		return tfjsonpath.New(attribute).AtSliceIndex(0)
	}
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{
			PreConfig: do(t, f.fire),
			Config:    f.config(read),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(runs, tfjsonpath.New("runs"), knownvalue.ListSizeExact(1)),
				statecheck.ExpectKnownValue(runs, first("runs"), knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"job": knownvalue.StringExact("nightly"), "trigger": knownvalue.StringExact("t"),
					"kind": knownvalue.StringExact("schedule"), "state": knownvalue.StringExact("claimed"),
					"http_status": knownvalue.Null(), "ended_at": knownvalue.Null(), "revision": knownvalue.Int64Exact(1),
				})),
				statecheck.ExpectKnownValue(nodes, first("nodes"), knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"name": knownvalue.StringExact("node"), "state": knownvalue.StringExact("active"), "in_flight": knownvalue.Int64Exact(0),
				})),
			},
		},
	)
}

func TestInvalidRunQueriesAreRefused(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	for query, want := range map[string]string{
		`app = "A"`:                               "Invalid name",
		"app = \"a\"\n trigger = \"t\"":           `"job" must be specified when "trigger" is specified`,
		"app = \"a\"\n state = \"Failed\"":        "state value must be one of",
		"app = \"a\"\n from = \"now\"":            `from: time "now" is not an instant`,
		"app = \"a\"\n to = \"2026-01-01T00:00\"": "Time without a zone",
		"app = \"a\"\n limit = 0":                 "limit 0 is out of range; give one from 1 to 1000",
		"app = \"a\"\n limit = 1.5":               "limit: 1.5 is not a whole number; give one from 1 to 1000",
		`app = "absent"`:                          `refused to list the runs of app "absent" (404)`,
	} {
		d := f.directory(t, providerBlock(""), "data \"carillon_runs\" \"all\" {\n "+query+"\n}\n")
		d.mustFail(t, []string{"plan"}, want)
	}
}

func TestRunDataSourceReadsAttempts(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	record := func(ctx context.Context) error {
		if err := f.fire(ctx); err != nil {
			return err
		}
		held, err := f.store.Held(ctx, 1, 1)
		if err != nil {
			return err
		}
		now := time.Now().UTC()
		return f.store.Record(ctx, []dispatcher.Record{{
			Key: held[0].Key, JobID: held[0].JobID, Revision: held[0].Revision, ClaimedAt: held[0].ClaimedAt,
			Node: 1, Token: held[0].Token, Attempt: held[0].Attempt,
			Outcome: run.Outcome{
				State: run.Failed, StartedAt: now, EndedAt: now,
				HTTPStatus: 500, Class: run.ClassHTTP5xx, Error: "the target responded with 500",
				Response: &run.Response{
					RequestID: "req-1", Headers: map[string]string{"server": "x"}, Body: "sorry", FunctionError: "Handled", LogTail: "END",
					Endpoint: "worker-1", CallbackResult: "42 rows",
					Phases: run.Phases{Connect: input.Duration(time.Millisecond), LastByte: input.Duration(time.Second)},
				},
			},
		}})
	}
	attempt := tfjsonpath.New("attempts").AtSliceIndex(0)
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{
			PreConfig: do(t, record),
			Config: f.config(job(hook+daily) + `
				data "carillon_runs" "all" { app = "crm" }
				data "carillon_run" "one" { id = data.carillon_runs.all.runs[0].id }
			`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.carillon_run.one", tfjsonpath.New("job"), knownvalue.StringExact("nightly")),
				statecheck.ExpectKnownValue("data.carillon_run.one", attempt, knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"attempt": knownvalue.Int64Exact(1), "http_status": knownvalue.Int64Exact(500), "class": knownvalue.StringExact("http_5xx"),
					"response": knownvalue.ObjectExact(map[string]knownvalue.Check{
						"request_id": knownvalue.StringExact("req-1"), "body": knownvalue.StringExact("sorry"), "body_truncated": knownvalue.Bool(false),
						"function_error": knownvalue.StringExact("Handled"), "executed_version": knownvalue.Null(), "log_tail": knownvalue.StringExact("END"),
						"endpoint": knownvalue.StringExact("worker-1"), "callback_result": knownvalue.StringExact("42 rows"),
						"message_id": knownvalue.Null(), "state": knownvalue.Null(), "state_problem": knownvalue.Null(),
						"headers": knownvalue.MapExact(map[string]knownvalue.Check{"server": knownvalue.StringExact("x")}),
						"phases": knownvalue.ObjectExact(map[string]knownvalue.Check{
							"dns": knownvalue.Null(), "connect": knownvalue.StringExact("1ms"), "tls": knownvalue.Null(),
							"first_byte": knownvalue.Null(), "last_byte": knownvalue.StringExact("1s"),
						}),
					}),
				})),
			},
		},
	)
}

// A new attribute of the resource must be in its data source, too, or be listed here.
func TestDataSourceOfAJobHasAllAttributesOfItsResource(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"id": "app and name", "labels_all": "labels are all labels", "trigger": "triggers", "next_fire_times": "next_fire_time of each trigger",
		"trigger.renamed_from": "the configuration's alone", "trigger.name": "the key of triggers",
	}
	all := schemas(t)
	read := map[string]argument{}
	walk(argumentsOf(all["data-sources/job"].Block), "", func(path string, a argument) { read[strings.TrimPrefix(path, ".")] = a })
	walk(argumentsOf(all["resources/job"].Block), "", func(path string, _ argument) {
		path = strings.TrimPrefix(path, ".")
		short := strings.Contains(path, "target.") || strings.Contains(path, "webhook.signing")
		place := strings.Replace(path, "trigger.", "triggers.", 1)
		if _, is := read[place]; is == (elsewhere[path] != "") && !short && !strings.HasPrefix(path, "objective.") {
			t.Errorf("%s: in data source: %v, elsewhere: %q; want one of them", path, is, elsewhere[path])
		}
	})
	if len(read) < len(elsewhere) {
		t.Errorf("the data source has %d attributes", len(read))
	}
}

func TestDataSourcesReadJobsAndCalendars(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	declared := app + `
		resource "carillon_calendar" "c" {
		  app  = carillon_app.a.name
		  name = "weekends"
		  rule { weekdays = ["SAT", "SUN"] }
		}
		resource "carillon_job" "j" {
		  app      = carillon_app.a.name
		  name     = "nightly"
		  priority = 3
		  ` + hook + `
		  payload     = "{}"
		  node_labels = { zone = "a" }
		  retry { delays = ["1m", "1h"] }
		  on_failure {
		    webhook { url = "https://oncall.example.com/failed?a=b" }
		  }
		  trigger {
		    name       = "t"
		    expression = "0 0 2 * * ?"
		    timezone   = "UTC"
		    calendar   = carillon_calendar.c.name
		  }
		}
	`
	at := func(first string, more ...string) tfjsonpath.Path { return tfjsonpath.Path(expect(first, more...)) }
	f.run(t,
		resource.TestStep{Config: f.config(declared)},
		resource.TestStep{
			Config: f.config(declared + `
				data "carillon_job" "j" {
				  app  = "crm"
				  name = "nightly"
				}
				data "carillon_calendar" "c" {
				  app  = "crm"
				  name = "weekends"
				}
				data "carillon_misfires" "all" { app = "crm" }
				data "carillon_schedule" "s" {
				  expression = "0 0 2 * * ?"
				  timezone   = "Europe/Berlin"
				  app        = "crm"
				  calendar   = data.carillon_calendar.c.name
				  from       = "2030-01-04T12:00:00Z" # a Friday
				  fires      = 2
				}
			`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.carillon_job.j", at("priority"), knownvalue.Int64Exact(3)),
				statecheck.ExpectKnownValue("data.carillon_job.j", at("triggers", "t"), knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"calendar": knownvalue.StringExact("weekends"), "state": knownvalue.StringExact("waiting"),
					"next_fire_time": knownvalue.NotNull(), "prev_fire_time": knownvalue.Null(), "error": knownvalue.Null(),
				})),
				statecheck.ExpectKnownValue("data.carillon_job.j", at("on_failure"), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"jobs": knownvalue.Null(), "payload": knownvalue.StringExact("own"), "webhook": knownvalue.ObjectExact(map[string]knownvalue.Check{
						"url": knownvalue.StringExact("https://oncall.example.com/failed?a=b"),
					}),
					"lambda": knownvalue.Null(), "sqs": knownvalue.Null(), "sns": knownvalue.Null(), "alert": knownvalue.Null(),
				})),
				statecheck.ExpectKnownValue("data.carillon_job.j", at("on_success"), knownvalue.Null()),
				statecheck.ExpectKnownValue("data.carillon_job.j", at("target", "kind"), knownvalue.StringExact("webhook")),
				statecheck.ExpectKnownValue("data.carillon_job.j", at("node_labels", "zone"), knownvalue.StringExact("a")),
				statecheck.ExpectKnownValue("data.carillon_job.j", at("payload"), knownvalue.StringExact("{}")),
				statecheck.ExpectKnownValue("data.carillon_job.j", at("retry", "delays"),
					knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("1m"), knownvalue.StringExact("1h")})),
				statecheck.ExpectKnownValue("data.carillon_calendar.c", tfjsonpath.New("rule").AtSliceIndex(0).AtMapKey("weekdays"),
					knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("SAT"), knownvalue.StringExact("SUN")})),
				statecheck.ExpectKnownValue("data.carillon_misfires.all", at("misfires"), knownvalue.ListSizeExact(0)),
				statecheck.ExpectKnownValue("data.carillon_schedule.s", at("fire_times"), knownvalue.ListExact([]knownvalue.Check{
					knownvalue.StringExact("2030-01-07T01:00:00Z"), knownvalue.StringExact("2030-01-08T01:00:00Z"),
				})),
				statecheck.ExpectKnownValue("data.carillon_schedule.s", tfjsonpath.New("local_times").AtSliceIndex(0),
					knownvalue.StringExact("Mon 2030-01-07 02:00:00 +01:00")),
				statecheck.ExpectKnownValue("data.carillon_schedule.s", at("description"),
					knownvalue.StringExact("at 02:00 every day; Europe/Berlin (UTC+01:00)")),
			},
		},
	)
	for read, want := range map[string]string{
		"job: app = \"crm\"\n name = \"absent\"":               `job "crm/absent"`,
		"job: app = \"crm\"\n name = \"N\"":                    "name_format",
		"schedule: expression = \"0 0 2\"":                     "0 0 2",
		"schedule: expression = \"@daily\"\n fires = 0":        "fires 0 is out of range; give a number from 1 to 100",
		"schedule: expression = \"@daily\"\n calendar = \"c\"": `"app" must be specified when "calendar" is specified`,
		"misfires: app = \"absent\"":                           `misfires of app "absent"`,
	} {
		kind, arguments, _ := strings.Cut(read, ":")
		d := f.directory(t, providerBlock(""), "data \"carillon_"+kind+"\" \"x\" {\n"+arguments+"\n}\n")
		d.mustFail(t, []string{"plan"}, want)
	}
}
