package provider_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	terraformstate "github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

const groupDir = "testdata/endpoint_group/"

// A story: all problems of a group and of a group target are reported at once, at their lines.
func TestWrongEndpointGroupsAreReportedAtTheirLines(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	needTerraform(t)
	d := (&fixture{}).directory(t, contents(t, groupDir+"wrong.tf"), providerBlock(""))
	golden(t, groupDir+"wrong.txt", d.mustFail(t, []string{"validate"}))
	d.rewrite(t, strings.Replace(contents(t, groupDir+"main.tf"), "expire_after", "expires_after", 1))
	d.mustFail(t, []string{"validate"}, "line 39", `Did you mean "expire_after"?`)
}

// Terraform hides a value that a configuration marks as sensitive by the position of its block.
func TestSensitiveURLOfAnEndpointStaysHiddenInAnotherOrder(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	hidden, open := "endpoint {\n name = \"a\"\n url = var.url\n}\n", "endpoint {\n name = \"b\"\n url = \"https://b.example.com\"\n}\n"
	config := func(url string, blocks ...string) string {
		return f.config(fmt.Sprintf(`variable "url" {
	sensitive = true
	default   = %q
}
resource "carillon_app" "a" { name = "crm" }
resource "carillon_endpoint_group" "g" {
	app  = carillon_app.a.name
	name = "workers"
	%s
}
`, url, strings.Join(blocks, "")))
	}
	d := f.directory(t, config("https://a.example.com/SECRETONE", hidden, open))
	said := d.must(t, "apply", "-auto-approve")
	for _, next := range []string{
		config("https://a.example.com/SECRETONE", open, hidden), config("https://a.example.com/SECRETTWO", open, hidden),
		config("https://a.example.com/SECRETTWO", hidden),
	} {
		d.rewrite(t, next)
		said += d.must(t, "apply", "-auto-approve") + d.must(t, "state", "show", "carillon_endpoint_group.g")
		mustChangeNothing(t, d)
	}
	if strings.Contains(said, "SECRET") {
		t.Errorf("the URL is shown:\n%s", said)
	}
}

// A story: one apply creates a group and a job on it, which are read back unchanged and imported.
// Changes outside of Terraform are drift.
func TestEndpointGroupStory(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, groupDir+"main.tf")
	d := f.directory(t, main, providerBlock(""))
	golden(t, groupDir+"plan.txt", d.must(t, "plan"))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	group, err := f.outside.Group(t.Context(), "billing", "workers")
	if err != nil || group.Endpoints["a"].Weight != 3 || !group.Endpoints["b"].Backup || group.Registration.Ports[0] != 8080 {
		t.Errorf("group = %+v, %v", group, err)
	}
	job, err := f.outside.Job(t.Context(), "billing", "nightly")
	if err != nil || job.Target.Group == nil || job.Target.Group.HashKey != "{{.Trigger}}" ||
		job.EndpointPolicy() != run.ConcurrencyQueue {
		t.Errorf("target = %+v, %v", job.Target.Group, err)
	}

	d.must(t, "state", "rm", "carillon_endpoint_group.workers", "carillon_job.nightly")
	d.must(t, "import", "carillon_endpoint_group.workers", "billing/workers")
	d.must(t, "import", "carillon_job.nightly", "billing/nightly")
	mustChangeNothing(t, d)

	group.Strategy, group.Probe.Timeout = "random", group.Probe.Timeout*2
	group.Endpoints["c"] = target.StaticEndpoint{URL: "https://c.example.com"}
	delete(group.Endpoints, "b")
	if _, err := f.outside.PutGroup(t.Context(), group, client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, groupDir+"drift.txt", d.must(t, "plan"))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "3 destroyed")
}

// The configuration that Terraform generates for an imported group is valid, and keeps its stored secret.
func TestGeneratedConfigurationOfAnEndpointGroup(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	f.directory(t, contents(t, groupDir+"main.tf"), providerBlock("")).must(t, "apply", "-auto-approve")
	group, err := f.outside.Group(t.Context(), "billing", "workers")
	if err != nil {
		t.Fatal(err)
	}
	stored := target.Secret{Value: input.NewSensitive("CANARY")}
	group.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: stored}}
	if _, err = f.outside.PutGroup(t.Context(), group, client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	d := f.directory(t, "import {\n to = carillon_endpoint_group.w\n id = \"billing/workers\"\n}\n", providerBlock(""))
	d.must(t, "plan", "-generate-config-out=generated.tf")
	golden(t, groupDir+"generated.txt", contents(t, filepath.Join(d.path, "generated.tf")))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1 imported, 0 added, 0 changed, 0 destroyed")
	mustChangeNothing(t, d)
}

// A story: one apply destroys or renames a group together with its last use. Terraform destroys it first.
func TestEndpointGroupGoesWithItsLastUseInOneApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	with := contents(t, groupDir+"main.tf")
	beginning, rest, _ := strings.Cut(with, "resource \"carillon_endpoint_group\"")
	_, job, _ := strings.Cut(rest, "resource \"carillon_job\"")
	before, after, _ := strings.Cut(job, "group {")
	_, after, _ = strings.Cut(after, "}\n")
	without := beginning + "resource \"carillon_job\"" + before + "webhook {\n url = \"https://a.example.com\"\n}\n" + after
	renamed := strings.Replace(with, `= "workers"`, `= "others"`, 1)
	mustBeGone := func(name string) {
		t.Helper()
		if _, err := f.outside.Group(t.Context(), "billing", name); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("group %s is still there: %v", name, err)
		}
	}
	d := f.directory(t, with, providerBlock(""))
	d.must(t, "apply", "-auto-approve")
	d.must(t, "apply", "-auto-approve", "-replace=carillon_endpoint_group.workers")
	d.rewrite(t, renamed)
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1 added, 1 changed, 1 destroyed")
	mustBeGone("workers")
	d.rewrite(t, strings.Replace(with, "path     = \"/jobs\"", "path = \"/jobs\"\n"+createFirst, 1))
	d.must(t, "apply", "-auto-approve")
	mustBeGone("others")
	d.rewrite(t, without)
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1 changed, 1 destroyed")
	mustBeGone("workers")
	mustChangeNothing(t, d)
}

// The plan reports a missing group, but not one that the same apply creates.
func TestMissingEndpointGroupsAreReportedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, groupDir+"main.tf")
	alone := strings.Replace(main[:strings.Index(main, "resource \"carillon_endpoint_group\"")]+
		main[strings.Index(main, "resource \"carillon_job\""):], "carillon_endpoint_group.workers.name", `"worker"`, 1)
	d := f.directory(t, alone, providerBlock(""))
	d.mustFail(t, []string{"plan"}, "The endpoint group does not exist", `target.group.name: app "billing" has no endpoint group "worker"`,
		"declare it as a carillon_endpoint_group and refer to its name")
	d.rewrite(t, main)
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, strings.Replace(main, "carillon_endpoint_group.workers.name", `"worker"`, 1))
	d.mustFail(t, []string{"plan"}, "did you mean workers?")
}

// Violations of the app's bounds are reported at plan, even if the same plan creates the app.
func TestEndpointGroupOutsideOfTheBoundsIsReportedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := strings.Replace(contents(t, groupDir+"main.tf"), "default_timezone = \"UTC\"\n",
		"default_timezone = \"UTC\"\nbounds {\n egress {\n hosts = [\"a.example.com\"]\n }\n}\n", 1)
	d := f.directory(t, main, providerBlock(""))
	d.mustFail(t, []string{"plan"}, "The app may not call this host or port", `endpoint["b"].url: host "b.example.com"`)
}

// secretGroup returns a group with a versioned secret.
func secretGroup(version, url, registration string) string {
	return app + `
	resource "carillon_endpoint_group" "g" {
		app  = carillon_app.a.name
		name = "workers"
		endpoint {
			name = "a"
			url  = "` + url + `"
		}
		` + registration + `
		auth {
			bearer {
				token {
					value = "canary-` + version + `"
					value_version = "` + version + `"
				}
			}
		}
	}
	`
}

// A stored secret is sent only where it was given for. Giving it again, or removing destinations, is allowed.
func TestSecretOfAnEndpointGroupIsNotSentElsewhere(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	register := func(network, port string) string {
		return "registration {\n networks = [\"" + network + "\"]\n ports = [" + port + "]\n}\n"
	}
	refused := words("auth.bearer.token.value_version: the stored value was given before") // the API would name another attribute
	const a, b = "https://a.example.com", "https://b.example.com"
	f.run(t,
		resource.TestStep{Config: f.config(secretGroup("1", a, register("10.0.0.0/16", "8080, 8081")))},
		resource.TestStep{Config: f.config(secretGroup("1", b, register("10.0.0.0/16", "8080"))), ExpectError: refused},
		resource.TestStep{Config: f.config(secretGroup("1", a, register("10.0.0.0/8", "8080"))), ExpectError: refused},
		resource.TestStep{Config: f.config(secretGroup("1", a, register("10.0.0.0/16", "8080, 9090"))), ExpectError: refused},
		resource.TestStep{Config: f.config(secretGroup("1", a, register("10.0.1.0/24", "8080")))},
		resource.TestStep{
			Config: f.config(secretGroup("2", b, register("10.0.0.0/8", "9090"))),
			ConfigPlanChecks: planned(plancheck.ExpectResourceAction("carillon_endpoint_group.g",
				plancheck.ResourceActionUpdate)),
			Check: f.knows(t, "canary-2"),
		},
	)
}

// knows checks the secret of group crm/workers as nodes read it.
func (f *fixture) knows(t *testing.T, want string) resource.TestCheckFunc {
	return func(*terraformstate.State) error {
		group, err := f.store.GroupVersion(t.Context(), "crm", "workers", time.Now())
		if got := group.Auth.Bearer.Token.Value.Reveal(); err == nil && got != want {
			err = fmt.Errorf("the token is %q, want %q", got, want)
		}
		return err
	}
}

// The data source shows the current endpoints, and the state of the group contains no registered ones.
func TestLiveEndpointsAreShown(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, contents(t, groupDir+"main.tf"), providerBlock(""))
	d.must(t, "apply", "-auto-approve")
	if _, err := f.outside.RegisterEndpoint(t.Context(), "billing", "workers", "w-1",
		target.StaticEndpoint{URL: "http://10.0.3.4:8080", Labels: input.Labels{"zone": "c"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.outside.DrainEndpoint(t.Context(), "billing", "workers", "a", true); err != nil {
		t.Fatal(err)
	}
	mustChangeNothing(t, d)
	d.rewrite(t, contents(t, groupDir+"main.tf")+`
	data "carillon_endpoints" "now" {
		app   = "billing"
		group = "workers"
	}
	output "now" {
		value = join(" ", [for e in data.carillon_endpoints.now.endpoints :
			"${e.id}=${e.url},${e.weight},${e.backup},${e.source},${e.draining},${e.expires_at == null}"])
	}
	`)
	d.must(t, "apply", "-auto-approve")
	const want = "a=https://a.example.com,3,false,static,true,true b=https://b.example.com/base,1,true,static,false,true " +
		"w-1=http://10.0.3.4:8080,1,false,registered,false,false"
	if got := strings.TrimSpace(d.must(t, "output", "-raw", "now")); got != want {
		t.Errorf("endpoints = %s\nwant %s", got, want)
	}
}

func TestEndpointGroupExampleIsAppliedAndDestroyed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), contents(t, filepath.Join(examplesDir, "resources", "carillon_endpoint_group", "resource.tf"))).
		with("TF_VAR_workers_token=canary")
	mustSay(t, d.must(t, "apply", "-auto-approve"), "5 added")
	d.must(t, "plan", "-detailed-exitcode")
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "5 destroyed")
}

// A story: one apply creates a group of executors and a job on it, which are read back unchanged and
// imported. The group determines the kind of its jobs, and no Terraform file contains the access token.
func TestExecutorGroupStory(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, groupDir+"xxl_job.tf")
	d := f.directory(t, main, providerBlock(""))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	group, err := f.outside.Group(t.Context(), "finance", "billing")
	if err != nil || group.Kind != target.GroupXXLJob || group.AppName != "billing-executor" || !group.AccessToken.Stored {
		t.Errorf("group = %+v, %v", group, err)
	}
	job, err := f.outside.Job(t.Context(), "finance", "invoices")
	want := target.XXLJobRun{Handler: "invoiceJobHandler", Param: "monthly", Blocking: target.BlockingQueue,
		CallbackTimeout: input.Duration(48 * time.Hour)}
	if err != nil || *job.Target.Group.XXLJob != want {
		t.Errorf("run = %+v, %v, want %+v", job.Target.Group.XXLJob, err, want)
	}
	if state := contents(t, filepath.Join(d.path, "terraform.tfstate")); strings.Contains(state, "CANARY") {
		t.Error("the access token is in the state")
	}

	d.must(t, "state", "rm", "carillon_endpoint_group.billing", "carillon_job.invoices")
	d.must(t, "import", "carillon_endpoint_group.billing", "finance/billing")
	d.must(t, "import", "carillon_job.invoices", "finance/invoices")
	d.must(t, "apply", "-auto-approve") // sends the access token, of which an import knows no version
	mustChangeNothing(t, d)

	block := main[strings.Index(main, "      xxl_job {"):strings.Index(main, "    }\n  }\n}\n")]
	d.rewrite(t, strings.Replace(main, block, "", 1))
	d.mustFail(t, []string{"apply", "-auto-approve"}, "Not for endpoint groups of this kind", "add xxl_job with a handler")
	d.rewrite(t, strings.Replace(main, `"xxl_job"`, `"http"`, 1))
	d.mustFail(t, []string{"plan"}, "Not for endpoint groups of this kind", "only a group of kind xxl_job has an access_token")
	d.rewrite(t, main)
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "3 destroyed")
}
