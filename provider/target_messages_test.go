package provider_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/carillon-dev/carillon/test/need"
)

// queueJob returns a job of an app that may use its queue and its topic.
func queueJob(f *fixture, target string) string {
	return f.config(`resource "carillon_app" "a" {
		name = "crm"
		bounds {
			sqs {
				queues = ["arn:aws:sqs:eu-central-1:123456789012:orders*"]
				roles  = ["arn:aws:iam::123456789012:role/crm-*"]
			}
			sns { topics = ["arn:aws:sns:eu-central-1:123456789012:orders"] }
		}
	}
	resource "carillon_job" "j" {
		app  = carillon_app.a.name
		name = "nightly"
		target {
` + target + `
		}
	}`)
}

const fullQueue = `sqs {
	queue_arn        = "arn:aws:sqs:eu-central-1:123456789012:orders.fifo"
	body             = jsonencode({ job = "{{.Job}}" })
	attributes       = { "app" = "{{.App}}" }
	message_group_id = "{{.Trigger}}-x"
	timeout          = "60s"
	assume_role {
		role_arn     = "arn:aws:iam::123456789012:role/crm-sender"
		session_tags = { "team" = "crm" }
	}
}`

func TestJobsOfQueuesAndTopicsAreStoredAndImported(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	imported := resource.TestStep{
		ResourceName: "carillon_job.j", ImportState: true, ImportStateId: "crm/nightly", ImportStateVerify: true,
		ImportStateVerifyIgnore: []string{"target.sqs.timeout"}, // 1m0s is equivalent
	}
	f.run(t,
		resource.TestStep{
			Config: queueJob(f, fullQueue),
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckResourceAttr("carillon_job.j", "target.sqs.attributes.app", "{{.App}}"),
				resource.TestCheckResourceAttr("carillon_job.j", "target.sqs.assume_role.session_tags.team", "crm"),
				resource.TestCheckResourceAttr("carillon_job.j", "target.sqs.timeout", "60s"),
			),
		},
		imported,
		resource.TestStep{
			Config: queueJob(f, `sns {
				topic_arn = "arn:aws:sns:eu-central-1:123456789012:orders"
				subject   = "{{.Job}}"
			}`),
			ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate)),
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckNoResourceAttr("carillon_job.j", "target.sqs.queue_arn"),
				resource.TestCheckResourceAttr("carillon_job.j", "target.sns.timeout", "30s"),
			),
		},
		imported,
		resource.TestStep{
			Config: queueJob(f, `sqs { queue_arn = "arn:aws:sqs:eu-central-1:123456789012:invoices" }`), PlanOnly: true,
			ExpectError: words("target.sqs.queue_arn: queue"),
		},
	)
}
