package provider_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/carillon-dev/carillon/test/need"
)

func TestRetryDefaultsAreShownInABlockAndRestoredWithoutOne(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	resources := func(retry string) string { return f.config(job(hook + daily + retry)) }
	f.run(t,
		resource.TestStep{
			Config: resources("retry {}"),
			ConfigPlanChecks: planned(
				expect("retry", "base").planned("5s"), expect("retry", "cap").planned("5m"),
			),
		},
		resource.TestStep{
			Config: resources(`retry {
				max_attempts = 2
				delays       = ["90s"]
			}`),
			ConfigPlanChecks:  planned(action(plancheck.ResourceActionUpdate), expect("retry", "base").planned("5s")),
			ConfigStateChecks: []statecheck.StateCheck{expect("retry", "max_age").stored("24h")},
		},
		resource.TestStep{
			Config: resources(`retry {
				max_attempts = 2
				delays       = ["1m30s"]
				cap          = "300s"
			}`),
			ConfigPlanChecks: planned(action(plancheck.ResourceActionNoop)),
		},
		resource.TestStep{Config: resources(`retry { delays = [] }`), ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate))},
		resource.TestStep{
			Config: resources(""),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("carillon_job.j", tfjsonpath.New("retry"), knownvalue.Null()),
			},
		},
	)
}
