package provider_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
)

func TestDataSourcesReadRunsAndNodes(t *testing.T) {
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

func TestRunQueriesAreChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for query, want := range map[string]string{
		`app = "A"`:                               "Invalid value (name_format)",
		"app = \"a\"\n trigger = \"t\"":           `"job" must be specified when "trigger" is specified`,
		"app = \"a\"\n state = \"Failed\"":        "state value must be one of",
		"app = \"a\"\n from = \"now\"":            `from: time "now" is not an instant`,
		"app = \"a\"\n to = \"2026-01-01T00:00\"": "Invalid value (time_zone_missing)",
		"app = \"a\"\n limit = 0":                 "limit 0 is out of range; give one from 1 to 1000",
		"app = \"a\"\n limit = 1.5":               "limit: 1.5 is not a whole number; give one from 1 to 1000",
		`app = "absent"`:                          `refused to list the runs of app "absent" (404)`,
	} {
		d := f.directory(t, providerBlock(""), "data \"carillon_runs\" \"all\" {\n "+query+"\n}\n")
		d.mustFail(t, []string{"plan"}, want)
	}
}
