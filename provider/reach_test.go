package provider_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// A plan warns of what no live node can call or read, whether a job, a group or an alert names it.
func TestPlanWarnsOfWhatNoNodeCanReach(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	register := func(reach target.Reach) {
		t.Helper()
		if err := f.store.Register(t.Context(), dispatcher.Node{ID: 1, Name: "n", Reach: reach}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	register(target.Reach{})
	const group = `resource "carillon_endpoint_group" "g" {
  app      = carillon_app.a.name
  name     = "workers"
  endpoint {
    name = "one"
    url  = "http://192.168.1.1/"
  }
}
resource "carillon_alert" "l" {
  app         = carillon_app.a.name
  name        = "on-call"
  late_after  = "5m"
  destination {
    webhook { url = "http://127.0.0.1/" }
  }
}
`
	config := f.config(job("target {\n  webhook {\n    url = \"http://10.0.0.5/x\"\n    auth {\n      bearer {\n        token {\n"+
		"          reference = \"vault:kv/data/crm#token\"\n        }\n      }\n    }\n  }\n}\n"+daily) + group)
	config = strings.Replace(config, `default_timezone = "UTC"`, "default_timezone = \"UTC\"\n  bounds {\n    secrets = [\"vault:*\"]\n  }", 1)
	d := f.directory(t, config)
	output := d.must(t, "plan")
	golden(t, "testdata/reach.txt", warningsOf(t, output))
	if again := d.must(t, "apply", "-auto-approve"); strings.Count(again, "opens the private network of 10.0.0.5") != 1 {
		t.Errorf("an apply warns not once:\n%s", again)
	}
}
