package provider_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	tfstate "github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

func TestBoundsOfAnAppAreDeclaredAndReadBack(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(more string) string {
		return f.config(fmt.Sprintf("resource \"carillon_app\" \"a\" {\n name = \"crm\"\n%s\n}\n", more))
	}
	const name, data = "carillon_app.a", "data.carillon_app.read"
	const read = `
		data "carillon_app" "read" {
			name = carillon_app.a.name
		}
	`
	f.run(t,
		resource.TestStep{
			Config: config("") + read, // without bounds, the data source shows the defaults
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckNoResourceAttr(name, "bounds.weight"),
				resource.TestCheckResourceAttr(data, "bounds.weight", "1"),
				resource.TestCheckResourceAttr(data, "bounds.quotas.jobs", "10000"),
				resource.TestCheckResourceAttr(data, "bounds.secrets.0", "env:SECRET_CRM_*"),
				resource.TestCheckResourceAttrPair(name, "aws_external_id", data, "aws_external_id"),
			),
		},
		resource.TestStep{
			Config: config(`bounds {
				weight = 3
				quotas {
					jobs      = 7
					retention = "2160h0m"
				}
			}`),
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckResourceAttr(name, "bounds.weight", "3"),
				resource.TestCheckResourceAttr(name, "bounds.quotas.jobs", "7"),
				resource.TestCheckResourceAttr(name, "bounds.quotas.triggers", "100000"),
				resource.TestCheckNoResourceAttr(name, "bounds.secrets.0"),
			),
		},
		resource.TestStep{
			Config: config(`bounds {
				suspended        = true
				suspended_reason = "unpaid"
				secrets = ["env:SECRET_CRM_*", "file:shared/*"]
				egress {
					hosts    = ["*.example.com"]
					ports    = [443]
					networks = ["public", "10.1.0.0/16"]
				}
				lambda {
					functions = ["crm-*"]
					roles     = ["arn:aws:iam::123456789012:role/crm-*"]
				}
				sqs {
					queues = ["arn:aws:sqs:*:123456789012:crm-*"]
					roles  = ["arn:aws:iam::123456789012:role/crm-*"]
				}
				sns { topics = ["arn:aws:sns:*:123456789012:crm-*"] }
				sign_as_node {
					service = "execute-api"
					hosts   = ["*.amazonaws.com"]
				}
			}`),
			Check: func(*tfstate.State) error {
				now, err := f.outside.App(t.Context(), "crm")
				if err == nil && (len(now.Bounds.SQS.Queues) != 1 || len(now.Bounds.SQS.Roles) != 1 || len(now.Bounds.SNS.Topics) != 1) {
					err = fmt.Errorf("the bounds are %+v and %+v", now.Bounds.SQS, now.Bounds.SNS)
				}
				if err == nil && now.Bounds.Quotas.Jobs != 10_000 {
					err = fmt.Errorf("without quotas the app may have %d jobs", now.Bounds.Quotas.Jobs)
				}
				return err
			},
		},
		resource.TestStep{
			ResourceName: name, ImportState: true, ImportStateId: "crm",
			ImportStateVerify: true, ImportStateVerifyIdentifierAttribute: "name", ImportStateVerifyIgnore: []string{"bounds"},
		},
		resource.TestStep{ // an operator changes the bounds elsewhere
			PreConfig: do(t, func(ctx context.Context) error {
				heavier := access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{Weight: 9}}}
				_, err := f.outside.PutApp(ctx, heavier, client.Condition{Existing: true})
				return err
			}),
			Config:           config(`bounds { weight = 3 }`),
			ConfigPlanChecks: planned(plancheck.ExpectResourceAction(name, plancheck.ResourceActionUpdate)),
		},
		resource.TestStep{Config: config(`bounds { weight = 101 }`), ExpectError: words("bounds.weight: weight 101 is not in 0 to 100")},
		resource.TestStep{Config: config(`bounds {
			quotas { jobs = 0 }
		}`), ExpectError: words("bounds.quotas.jobs: 0 is less than")},
		resource.TestStep{
			Config: config(`bounds {
				egress { networks = ["10.1.0.1/16"] }
			}`),
			ExpectError: words(`bounds.egress.networks[0]: "10.1.0.1/16" is neither public nor a network`),
		},
		resource.TestStep{
			Config:      config(`bounds { secrets = ["consul:x"] }`),
			ExpectError: words(`bounds.secrets[0]: "consul:x" is not env:SECRET_NAME, file:PATH,`),
		},
		resource.TestStep{Config: config("")}, // without a bounds block they stay
		resource.TestStep{Config: config("") + read, Check: resource.TestCheckResourceAttr(data, "bounds.weight", "3")},
	)
}

// A module passes [] for an empty list. It closes the app, and the second plan is empty.
func TestEmptyListsOfBoundsStayEmpty(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	with := func(bounds string) string {
		return f.config(fmt.Sprintf("resource \"carillon_app\" \"a\" {\n name = \"crm\"\n%s\n}\n", bounds))
	}
	closed := func(want bool) resource.TestCheckFunc {
		return func(*tfstate.State) error {
			app, err := f.outside.App(t.Context(), "crm")
			if err != nil {
				return err
			}
			b := app.Bounds
			for name, open := range map[string]bool{"secrets": len(b.Secrets) > 0, "hosts": b.Egress.Hosts == nil,
				"ports": b.Egress.Ports == nil, "networks": b.Egress.Networks == nil} {
				if open == want {
					err = errors.Join(err, fmt.Errorf("%s of %+v: closed %t, want %t", name, *b, !open, want))
				}
			}
			return err
		}
	}
	const none = `bounds {
		secrets = []
		egress {
			hosts    = []
			ports    = []
			networks = []
		}
		lambda { functions = [] }
	}`
	f.run(t,
		resource.TestStep{Config: with(none), Check: closed(true)},
		resource.TestStep{Config: with(`bounds {}`), Check: closed(false)},
		resource.TestStep{Config: with(`bounds {
			egress {}
		}`), Check: closed(false)},
		resource.TestStep{Config: with(none), Check: closed(true)},
	)
}

const lambdaTarget = `target {
  lambda { function = "arn:aws:lambda:eu-central-1:123456789012:function:pay" }
}
`

func TestJobOutsideTheBoundsIsRefusedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	with := func(bounds, target string) string {
		return f.config(fmt.Sprintf("resource \"carillon_app\" \"a\" {\n name = \"crm\"\n%s\n}\n", bounds) +
			"resource \"carillon_job\" \"j\" {\n app = carillon_app.a.name\n name = \"nightly\"\n" + target + "}\n")
	}
	const allowed = `bounds {
		lambda { functions = ["arn:aws:lambda:*:123456789012:function:pay"] }
	}
	`
	f.run(t,
		resource.TestStep{Config: with("", hook)},
		resource.TestStep{
			Config: with("", lambdaTarget), PlanOnly: true, ExpectError: words("target.lambda.function: "),
		},
		resource.TestStep{
			Config: with(`bounds {
				egress { hosts = ["x.org"] }
			}`, hook), PlanOnly: true, ExpectError: words("target.webhook.url: host"),
		},
		resource.TestStep{Config: with(allowed, lambdaTarget)}, // one apply widens the bounds and uses them
		resource.TestStep{Config: with(allowed, hook)},
	)
}

func TestJobsThatAChangeOfBoundsBreaksAreShown(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), app)
	d.must(t, "apply", "-auto-approve")
	_, err := f.outside.PutJob(t.Context(), dispatcher.Job{App: "crm", Name: "theirs", JobSpec: dispatcher.JobSpec{Target: target.Target{
		Webhook: &target.Webhook{URL: "https://example.com/"},
	}}}, client.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	a := alert.Alert{App: "crm", Name: "on-call"}
	a.Failure = &alert.Failures{}
	a.Destination.Webhook = &target.AlertWebhook{Webhook: target.Webhook{URL: "https://alerts.example.com/"}}
	a.Destination.Webhook.SetDefaults()
	if _, err := f.outside.PutAlert(t.Context(), a, client.Condition{}); err != nil {
		t.Fatal(err)
	}
	bounded := `resource "carillon_app" "crm" {
		name   = "crm"
		bounds {
			egress { hosts = ["hooks.example.org"] }
		}
	}`
	again := f.directory(t, providerBlock(""), bounded)
	again.must(t, "import", "carillon_app.crm", "crm")
	mustSay(t, again.must(t, "apply", "-auto-approve"), `Jobs outside the bounds of app`, "theirs: target.webhook.url: host", "egress.hosts",
		`Alerts outside the bounds of app`, "on-call: destination.webhook.url: host")
}
