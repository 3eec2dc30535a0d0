package provider_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	terraformstate "github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/provider"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// fixture is the API over its own database, and a client that makes changes outside of Terraform.
type fixture struct {
	store    *store.Store
	outside  *client.Client
	endpoint string
	token    string
	client   clientProgram // runs in directories; without a path, the default one
}

// secretKeys are the keys of the nodes of tests.
const secretKeys = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// newFixture starts a fixture. It skips the test without terraform.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	needTerraform(t)
	database := sqlitetest.New(t)
	keys, err := seal.Parse(secretKeys)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), database, store.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	server := httptest.NewServer(api.New(s, api.Options{Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	f := &fixture{store: s, endpoint: server.URL}
	f.token = f.newToken(t, access.APIToken{Name: "terraform", TokenSpec: access.TokenSpec{Scopes: access.Scopes()}})
	f.outside, err = client.New(f.endpoint, f.token, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) newToken(t *testing.T, token access.APIToken) string {
	t.Helper()
	secret, hash := access.NewToken()
	token.ID, token.Hash = access.NewTokenID(), hash
	if err := f.store.CreateToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	return secret
}

// run runs steps with the real terraform against the provider in this process. After each
// step that applies, plugin-testing plans again and fails unless that plan is empty.
func (f *fixture) run(t *testing.T, steps ...resource.TestStep) {
	t.Helper()
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: map[string]func() (tfprotov6.ProviderServer, error){
			"carillon": func() (tfprotov6.ProviderServer, error) { return provider.NewServer(t.Context(), "test"), nil },
		},
		Steps: steps,
	})
}

// config puts the provider block of this fixture before resources.
func (f *fixture) config(resources string) string { return f.configWith("", resources) }

// configWith is config with more arguments in the provider block, one per line.
func (f *fixture) configWith(arguments, resources string) string {
	return providerBlock(fmt.Sprintf("endpoint = %q\n token = %q%s", f.endpoint, f.token, arguments)) + resources
}

func providerBlock(arguments string) string {
	return fmt.Sprintf(`
terraform {
  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}
provider "carillon" {
  %s
}
`, arguments)
}

// app is the app of all jobs in tests.
const app = `resource "carillon_app" "a" {
  name             = "crm"
  default_timezone = "UTC"
}
`

// job returns a job crm/nightly with these attributes in addition to app and name.
func job(attributes string) string {
	return app + fmt.Sprintf("resource \"carillon_job\" \"j\" {\n app = carillon_app.a.name\n name = \"nightly\"\n%s\n}\n", attributes)
}

const (
	hook  = "target {\n  webhook { url = \"https://example.com/hook\" }\n}\n"
	daily = "trigger {\n  name       = \"t\"\n  expression = \"0 0 2 * * ?\"\n}\n"
)

// readJob reads crm/nightly.
func (f *fixture) readJob(ctx context.Context) (dispatcher.Job, error) {
	return f.outside.Job(ctx, "crm", "nightly")
}

// change edits crm/nightly outside of Terraform, at any revision.
func (f *fixture) change(ctx context.Context, edit func(*dispatcher.Job)) error {
	job, err := f.readJob(ctx)
	if err != nil {
		return err
	}
	edit(&job)
	_, err = f.outside.PutJob(ctx, job, client.Condition{Existing: true})
	return err
}

// fire makes a node claim the next fire of each trigger, as if its time had come.
func (f *fixture) fire(ctx context.Context) error {
	now := time.Now().UTC()
	node := dispatcher.Node{ID: 1, Name: "node", Version: "test", State: dispatcher.NodeActive}
	if err := f.store.Register(ctx, node, now); err != nil {
		return err
	}
	ahead := 48 * time.Hour
	due, err := f.store.Due(ctx, dispatcher.DueQuery{Until: now.Add(ahead), Now: now, Limit: 100})
	if err != nil {
		return err
	}
	jobs, err := f.jobsOf(ctx, due)
	if err != nil {
		return err
	}
	batch := dispatcher.ClaimBatch{Node: node.ID, Token: 1, Lead: ahead, Now: now}
	for _, t := range due {
		batch.Advances = append(batch.Advances, dispatcher.Advance{
			TriggerID: t.ID, JobID: jobs[t.ID], Revision: t.Revision, Prev: t.PrevFireTime, Next: t.NextFireTime,
			Then: t.NextFireTime.Add(24 * time.Hour),
		})
	}
	won, err := f.store.Claim(ctx, batch)
	if err == nil && (len(won) == 0 || len(won) != len(due)) {
		err = fmt.Errorf("%d of %d fires were claimed", len(won), len(due))
	}
	return err
}

// jobsOf returns the job ids of triggers, by trigger.
func (f *fixture) jobsOf(ctx context.Context, due []dispatcher.DueTrigger) (map[int64]int64, error) {
	ids := make([]int64, len(due))
	for i, t := range due {
		ids[i] = t.ID
	}
	jobs := map[int64]int64{}
	versions, err := f.store.TriggersByID(ctx, ids)
	for _, v := range versions {
		jobs[v.ID] = v.JobID
	}
	return jobs, err
}

// do returns a PreConfig that runs step before a test step.
func do(t *testing.T, step func(context.Context) error) func() {
	return func() {
		t.Helper()
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// between runs step between a plan and its apply.
type between func(context.Context) error

func (step between) CheckPlan(ctx context.Context, _ plancheck.CheckPlanRequest, resp *plancheck.CheckPlanResponse) {
	resp.Error = step(ctx)
}

// planned lists checks of the plan of a step.
func planned(checks ...plancheck.PlanCheck) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: checks}
}

// action expects this action for the job in the plan.
func action(a plancheck.ResourceActionType) plancheck.PlanCheck {
	return plancheck.ExpectResourceAction("carillon_job.j", a)
}

// attribute is a text attribute of the job.
type attribute tfjsonpath.Path

func expect(first string, more ...string) attribute {
	path := tfjsonpath.New(first)
	for _, step := range more {
		if i, err := strconv.Atoi(step); err == nil {
			path = path.AtSliceIndex(i)
		} else {
			path = path.AtMapKey(step)
		}
	}
	return attribute(path)
}

// planned expects the text in the plan.
func (a attribute) planned(text string) plancheck.PlanCheck {
	return plancheck.ExpectKnownValue("carillon_job.j", tfjsonpath.Path(a), knownvalue.StringExact(text))
}

// stored expects the text in the state.
func (a attribute) stored(text string) statecheck.StateCheck {
	return statecheck.ExpectKnownValue("carillon_job.j", tfjsonpath.Path(a), knownvalue.StringExact(text))
}

// stores checks the job as the API has it.
func (f *fixture) stores(t *testing.T, holds func(dispatcher.Job) bool) resource.TestCheckFunc {
	return func(*terraformstate.State) error {
		job, err := f.readJob(t.Context())
		if err == nil && !holds(job) {
			err = fmt.Errorf("the stored job is %+v with the webhook %+v", job, job.Target.Webhook)
		}
		return err
	}
}
