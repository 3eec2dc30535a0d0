package provider_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/need"
)

func TestJobsHaveTheirLabelsAndThoseOfTheProvider(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	has := func(labels input.Labels) resource.TestCheckFunc {
		return f.stores(t, func(j dispatcher.Job) bool { return maps.Equal(j.Labels, labels) })
	}
	const defaults = "\n" + `default_labels = { repository = "infra", team = "platform" }`
	labelled := job(hook + daily + `labels = { team = "payments", tier = "1" }`)
	plain := job(hook + daily)
	f.run(t,
		resource.TestStep{Config: f.config(labelled), Check: has(input.Labels{"team": "payments", "tier": "1"})},
		resource.TestStep{
			Config:           f.configWith(defaults, labelled),
			ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate), expect("labels_all", "repository").planned("infra")),
			Check:            has(input.Labels{"repository": "infra", "team": "payments", "tier": "1"}),
		},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				return f.change(ctx, func(j *dispatcher.Job) { j.Labels = input.Labels{"repository": "other", "more": "1"} })
			}),
			Config:           f.configWith(defaults, labelled),
			ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate)),
			Check:            has(input.Labels{"repository": "infra", "team": "payments", "tier": "1"}),
		},
		resource.TestStep{
			Config: f.configWith(defaults, plain), Check: has(input.Labels{"repository": "infra", "team": "platform"}),
		},
		resource.TestStep{ // other default labels are a change of the configuration, not of the job
			Config:           f.configWith("\n"+`default_labels = { repository = "infra", team = "core" }`, plain),
			ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate), noDrift{}),
			Check:            has(input.Labels{"repository": "infra", "team": "core"}),
		},
		resource.TestStep{
			Config: f.configWith(defaults, plain), Check: has(input.Labels{"repository": "infra", "team": "platform"}),
		},
		resource.TestStep{
			ResourceName: "carillon_job.j", ImportState: true, ImportStateId: "crm/nightly", ImportStateVerify: true,
			ImportStateVerifyIgnore: []string{"revision"}, Config: f.configWith(defaults, plain),
		},
		resource.TestStep{Config: f.config(plain), Check: has(nil)},
		resource.TestStep{
			Config:      f.config(job(hook + daily + `labels = { team = "a b" }`)),
			ExpectError: words(`labels["team"]: label "team"="a b": names and values are 1 to 63 letters`),
		},
		resource.TestStep{
			Config:      f.configWith("\n"+`default_labels = { "no good" = "x" }`, plain),
			ExpectError: words(`Invalid default_labels of the Carillon provider`),
		},
		resource.TestStep{Config: f.config(plain)},
	)
}

// noDrift demands that the refresh of a plan found nothing changed.
type noDrift struct{}

func (noDrift) CheckPlan(_ context.Context, req plancheck.CheckPlanRequest, resp *plancheck.CheckPlanResponse) {
	for _, changed := range req.Plan.ResourceDrift {
		resp.Error = fmt.Errorf("%s drifted from %v to %v", changed.Address, changed.Change.Before, changed.Change.After)
	}
}
