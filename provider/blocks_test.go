package provider_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider"
	"github.com/carillon-dev/carillon/test/need"
)

// A story: Terraform names the line and the nearest name, without a request to the provider.
func TestStoryMisspeltNamesAreRefusedByValidate(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	eachClient(t, func(t *testing.T, client clientProgram) {
		const dir = "testdata/misspelling/"
		d := (&fixture{client: client}).directory(t, contents(t, dir+"main.tf"), providerBlock(""))
		golden(t, dir+"says.txt", d.mustFail(t, []string{"validate"}))
	})
}

// Arguments inside a resource must be blocks: in an object, Terraform drops a misspelt name. A plan cannot
// add a block that the configuration leaves out, so no block may be computed or have a default.
func TestNestedArgumentsOfResourcesAreBlocksWithoutDefaults(t *testing.T) {
	t.Parallel()
	own := providerserver.NewProtocol6(provider.New("test")())()
	declared, err := own.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var nested []string
	var declares func(path string, attributes []*tfprotov6.SchemaAttribute)
	declares = func(path string, attributes []*tfprotov6.SchemaAttribute) {
		for _, a := range attributes {
			if a.NestedType == nil || !a.Required && !a.Optional {
				continue
			}
			at := path + "." + a.Name
			if nested = append(nested, at); a.Computed {
				t.Errorf("%s is a block, but computed or with a default", at)
			}
			declares(at, a.NestedType.Attributes)
		}
	}
	var sent []string
	var sends func(path string, block *tfprotov6.SchemaBlock)
	sends = func(path string, block *tfprotov6.SchemaBlock) {
		for _, b := range block.BlockTypes {
			sent = append(sent, path+"."+b.TypeName)
			sends(path+"."+b.TypeName, b.Block)
		}
	}
	got, err := provider.NewServer(t.Context(), "test").GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for name, schema := range got.ResourceSchemas {
		declares(name, declared.ResourceSchemas[name].Block.Attributes)
		sends(name, schema.Block)
		if own, blocks := declared.ResourceSchemas[name].ValueType(), schema.ValueType(); !own.Equal(blocks) {
			t.Errorf("%s has another type with blocks: %s and %s", name, own, blocks)
		}
	}
	slices.Sort(nested)
	slices.Sort(sent)
	if diff := cmp.Diff(nested, sent); diff != "" || len(sent) == 0 {
		t.Errorf("blocks (-declared +sent):\n%s", diff)
	}
}

// A module with a map of schedules writes them as dynamic blocks, even if the map is known only at apply.
func TestTriggersComeFromAMap(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	dynamic := func(schedules string) string {
		return job(hook + `dynamic "trigger" {
			for_each = ` + schedules + `
			content {
				name       = trigger.key
				expression = trigger.value.expression
				timezone   = try(trigger.value.timezone, null)
			}
		}`)
	}
	const schedules = `{ a = { expression = "@daily" }, b = { expression = "0 30 2 * * ?", timezone = "Europe/Berlin" } }`
	d := f.directory(t, f.config(dynamic(schedules)))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	stored, err := f.readJob(t.Context())
	if err != nil || len(stored.Triggers) != 2 || stored.Triggers["b"].Timezone != "Europe/Berlin" {
		t.Fatalf("job = %+v, %v", stored, err)
	}

	// A change shows the attribute that changed, also if the order is another one and a trigger is new.
	const changed = `{
		"0" = { expression = "@hourly" }, a = { expression = "@weekly" }, b = { expression = "0 30 2 * * ?", timezone = "Europe/Berlin" }
	}`
	d.rewrite(t, f.config(dynamic(changed)))
	output := d.must(t, "apply", "-auto-approve")
	mustSay(t, output, `~ expression      = "@daily" -> "@weekly"`, `+ name            = "0"`, "1 changed")
	shown, _, _ := strings.Cut(output, "\nPlan: ")
	if strings.Contains(shown, "-> null") || strings.Contains(shown, "Europe/Berlin") || strings.Count(shown, "~ expression") != 1 {
		t.Errorf("the plan shows more than what changes:\n%s", output)
	}
	mustChangeNothing(t, d)

	// With triggers removed, the plan shows the removed blocks with their names.
	d.rewrite(t, f.config(dynamic(`{ a = { expression = "@weekly" } }`)))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "- trigger {", `- name            = "b" -> null`, "1 changed")
	mustChangeNothing(t, d)

	// The contents of the triggers may be known only at apply, and so may their names.
	later := laterOf("later", `{ c = { expression = "@hourly" } }`)
	d.rewrite(t, f.config(later+dynamic("{ c = terraform_data.later.output.c }")))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	stored, err = f.readJob(t.Context())
	if err != nil || len(stored.Triggers) != 1 || stored.Triggers["c"].Expression != "@hourly" {
		t.Fatalf("job = %+v, %v", stored, err)
	}
	again := strings.ReplaceAll(later, "later", "again")
	d.rewrite(t, f.config(again+dynamic("terraform_data.again.output")))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

// A story: triggers from variables, each.value, a file and modules of three levels, as a platform team writes them.
func TestStoryModulesMakeJobsWithTriggers(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		d := f.directory(t, providerBlock(""))
		if err := os.CopyFS(d.path, os.DirFS("testdata/modules")); err != nil {
			t.Fatal(err)
		}
		d.must(t, "get")
		mustSay(t, d.must(t, "validate"), "The configuration is valid")
		mustSay(t, d.must(t, "apply", "-auto-approve"), "9 added, 0 changed, 0 destroyed")
		mustChangeNothing(t, d)
		for name, want := range map[string]string{
			"variable": "x y", "each-billing": "hourly nightly", "each-idle": "", "literal": "a b", "sales-reports": "monthly",
		} {
			job, err := f.outside.Job(t.Context(), "crm", name)
			if got := strings.Join(slices.Sorted(maps.Keys(job.Triggers)), " "); err != nil || got != want {
				t.Errorf("job %s has the triggers %q, %v, want %q", name, got, err, want)
			}
		}
		write(t, filepath.Join(d.path, "terraform.tfvars"), `schedules = { y = "0 0 12 * * ?", x = "@daily", z = "@hourly" }`)
		mustSay(t, d.must(t, "apply", "-auto-approve"), `+ name            = "z"`, "0 added, 1 changed, 0 destroyed")
		mustChangeNothing(t, d)
	})
}

// mustChangeNothing fails the test unless the plan is empty.
func mustChangeNothing(t *testing.T, d directory) {
	t.Helper()
	if output, err := d.terraform(t, "plan", "-detailed-exitcode"); err != nil {
		t.Errorf("the plan is not empty: %v\n%s", err, output)
	}
}

// Blocks and arguments that are removed return to their defaults, and the state contains none of them.
func TestBlocksThatAreLeftOutHaveTheirDefaults(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+daily+"retry {}\n")))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	d.rewrite(t, f.config(job(hook+daily+"retry { max_attempts = 7 }\n")))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	d.rewrite(t, f.config(job(hook)))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "- retry {", "- trigger {")
	mustChangeNothing(t, d)
	stored, err := f.readJob(t.Context())
	if err != nil || stored.Retry.MaxAttempts == 7 || len(stored.Triggers) != 0 {
		t.Fatalf("job = %+v, %v", stored, err)
	}
	// The policy is changed outside of Terraform.
	if err := f.change(t.Context(), func(job *dispatcher.Job) { job.Retry.MaxAttempts = 9 }); err != nil {
		t.Fatal(err)
	}
	mustSay(t, d.must(t, "plan"), "- max_attempts", "- retry {", "0 to add, 1 to change")
}

// everything is a configuration with each kind of importable block.
const everything = "testdata/state/everything.tf"

func TestGeneratedConfigurationOfAnImportIsValidAndComplete(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		f.directory(t, contents(t, everything), providerBlock("")).must(t, "apply", "-auto-approve")
		stored := target.Secret{Value: input.NewSensitive("CANARY")}
		_, err := f.outside.PutJob(t.Context(), dispatcher.Job{App: "crm", Name: "secret", JobSpec: dispatcher.JobSpec{Target: target.Target{
			Webhook: &target.Webhook{URL: "https://hooks.example.com/", Auth: &target.Auth{Bearer: &target.BearerAuth{Token: stored}}},
		}}}, client.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		imports := ""
		for to, id := range map[string]string{
			"carillon_app.crm": "crm", "carillon_calendar.holidays": "crm/holidays", "carillon_job.nightly": "crm/nightly",
			"carillon_job.plain": "crm/plain", "carillon_job.secret": "crm/secret",
		} {
			imports += fmt.Sprintf("import {\n to = %s\n id = %q\n}\n", to, id)
		}
		d := f.directory(t, imports, providerBlock(""))
		d.must(t, "plan", "-generate-config-out=generated.tf")
		generated := filepath.Join(d.path, "generated.tf")
		golden(t, "testdata/state/generated.txt", inOrder(contents(t, generated)))
		mustSay(t, d.must(t, "apply", "-auto-approve"), "5 imported, 0 added, 0 changed, 0 destroyed")
		mustChangeNothing(t, d)

		// A change keeps the stored secret, which the configuration does not contain. A new job would have no secret.
		now := contents(t, generated)
		write(t, generated, strings.Replace(now, "enabled                 = false", "enabled = true", 1))
		mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 1 changed, 0 destroyed")
		d.rewrite(t, "") // OpenTofu requires the resources of import blocks
		write(t, generated, strings.Replace(now, `"secret"`, `"other"`, -1))
		d.mustFail(t, []string{"plan"}, "(required)", "target.webhook.auth.bearer.token: secret is missing")
	})
}

// inOrder sorts the resources of generated configuration, because Terraform's order varies. It also converts
// OpenTofu's output: OpenTofu writes an empty text in place of null, and calls a secret write-only.
func inOrder(generated string) string {
	generated = strings.NewReplacer(`= ""`, "= null", "# sensitive write-only", "# sensitive").Replace(generated)
	head, rest, _ := strings.Cut(generated, "\n\n")
	parts := strings.SplitAfter(rest, "\n}\n")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	slices.Sort(parts)
	return head + "\n\n" + strings.TrimSpace(strings.Join(parts, "\n\n"))
}

// This directory has a state of each released schema, as its provider wrote it. A newer provider reads it unchanged.
func TestStatesOfAllReleasesAreRead(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	states, err := filepath.Glob("testdata/state/*.json")
	if err != nil || len(states) == 0 {
		t.Fatalf("states = %v, %v", states, err)
	}
	f := newFixture(t)
	first := f.directory(t, contents(t, everything), providerBlock(""))
	first.must(t, "apply", "-auto-approve")
	if *update { // only the last one, of the coming release
		write(t, states[len(states)-1], contents(t, filepath.Join(first.path, "terraform.tfstate")))
	}
	for _, state := range states {
		d := f.directory(t, contents(t, everything), providerBlock(""))
		write(t, filepath.Join(d.path, "terraform.tfstate"), contents(t, state))
		mustChangeNothing(t, d)
		mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 0 changed, 0 destroyed")
	}
}
