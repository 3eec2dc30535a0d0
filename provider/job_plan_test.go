package provider_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/test/need"
)

func TestEquivalentStringsAreNoChange(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	text := func(timeout, misfire, start, payload string) string {
		return f.config(job(fmt.Sprintf(`
			target {
				webhook {
					url     = "https://example.com/"
					timeout = %q
				}
			}
			trigger {
				name          = "t"
				expression    = "@daily"
				misfire_after = %q
				jitter        = %[2]q
				start_at      = %q
			}
			payload  = %q`, timeout, misfire, start, payload)))
	}
	f.run(t,
		resource.TestStep{Config: text("60s", "90s", "2030-01-01T02:00:00+02:00", `{"a":1,"b":2}`)},
		resource.TestStep{
			Config:           text("1m0s", "1m30s", "2030-01-01T00:00:00Z", `{ "b": 2, "a": 1 }`),
			ConfigPlanChecks: planned(plancheck.ExpectEmptyPlan()),
		},
		resource.TestStep{
			Config:           text("61s", "1m30s", "2030-01-01T00:00:00Z", `{ "b": 2, "a": 1 }`),
			ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate)),
		},
	)
}

func TestEmptyAndNullMapsStayAsWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run(t,
		resource.TestStep{Config: f.config(job(`
			target {
				webhook {
					url     = "https://example.com/"
					headers = {}
				}
			}
			payload  = jsonencode(null)
			node_labels = {}
			`))},
		resource.TestStep{Config: f.config(job(`
			target {
				webhook {
					url     = "https://example.com/"
					headers = null
				}
			}
			payload  = null
			`))},
	)
}

func TestTimePassingIsNoChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var before dispatcher.Job
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) (err error) {
				if before, err = f.readJob(ctx); err != nil {
					return err
				}
				return f.fire(ctx)
			}),
			Config:           f.config(job(hook + daily)),
			ConfigPlanChecks: planned(plancheck.ExpectEmptyPlan()),
		},
	)
	if before.Triggers["t"].NextFireTime == nil {
		t.Error("the trigger had no next fire time, so nothing moved")
	}
}

func TestAPIWarningsAreShownAtApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(`
		target {
			webhook {
				url    = "https://example.com/"
				method = "GET"
			}
		}
		payload  = "{}"
		`)))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "The method sends no body", "payload: method GET sends no body")
}

func TestUnknownJobValuesAreCheckedAtApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	later := func(value string) string {
		return "resource \"terraform_data\" \"later\" {\n input = " + value + "\n}\n"
	}
	f.run(t,
		// All values that may be unknown are unknown, and valid.
		resource.TestStep{
			Config: f.config(later(`{
				text = "0 0 2 * * ?", url = "https://example.com/", timeout = "5s"
				at = "2030-01-01T00:00:00Z", zone = "Asia/Tokyo", on = true, n = 3 }`) +
				job(`
				description = terraform_data.later.output.text
				enabled     = terraform_data.later.output.on
				payload     = jsonencode(terraform_data.later.output.n)
				target {
					webhook {
						url = terraform_data.later.output.url
						timeout = terraform_data.later.output.timeout
						body = "{{.Job}} {{json .Payload}} ${terraform_data.later.output.text}"
						headers = { A = terraform_data.later.output.text }
					}
				}
				trigger {
					name       = "t"
					expression = terraform_data.later.output.text
					timezone   = terraform_data.later.output.zone
				}
				trigger {
					name         = "u"
					expression   = "@daily"
					start_at     = terraform_data.later.output.at
					repeat_count = terraform_data.later.output.n
				}`)),
			ConfigPlanChecks: planned(
				plancheck.ExpectUnknownValue("carillon_job.j", tfjsonpath.New("trigger").AtSliceIndex(0).AtMapKey("dialect")),
			),
			ConfigStateChecks: []statecheck.StateCheck{
				expect("trigger", "0", "dialect").stored("quartz"), expect("trigger", "1", "dialect").stored("unix"),
			},
		},
		// Unknown values turn out to be invalid.
		resource.TestStep{
			Config: f.config(strings.ReplaceAll(later(`{ text = "60 * * * *", timeout = "5" }`)+job(`
				target {
					webhook {
						url     = "https://example.com/"
						timeout = terraform_data.again.output.timeout
					}
				}
				trigger {
					name       = "t"
					expression = terraform_data.again.output.text
				}`), `"later"`, `"again"`)),
			ExpectError: regexp.MustCompile(`(?s)target.webhook.timeout: .*duration_unit.*trigger\["t"\].expression: .*cron_range`),
		},
		// Known values next to unknown ones are still checked at plan.
		resource.TestStep{
			Config: f.config(later(`"new"`) + job(`
				target {
					webhook { url = terraform_data.later.output }
				}
				trigger {
					name       = "t"
					expression = terraform_data.later.output
					timezone   = "CEST"
				}`)),
			ConfigPlanChecks: planned(between(func(context.Context) error { return errors.New("it was planned") })),
			ExpectError:      regexp.MustCompile(`tz_unknown`),
		},
		resource.TestStep{Config: f.config(app)}, // a valid configuration, so that destroy works
	)
}

func TestNewInstantInThePastIsRefused(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+`trigger {
		name       = "t"
		expression = "at(2001-01-01T00:00:00Z)"
	}`)))
	d.mustFail(t, []string{"plan"}, "A time in the past", `trigger["t"].expression:`)
	d = f.directory(t, f.config(job(hook+`trigger {
		name       = "t"
		expression = "@daily"
		end_at     = "2001-01-01T00:00:00Z"
	}`)))
	d.mustFail(t, []string{"plan"}, "A time in the past", `trigger["t"].end_at:`)
}

func TestMissingRequiredValueIsReportedOnce(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	for _, attributes := range []string{
		hook + `trigger {
			name       = "t"
			expression = null
		}`,
		`target {
			webhook { url = null }
		}` + "\n" + daily,
	} {
		output := f.directory(t, f.config(job(attributes))).mustFail(t, []string{"plan"})
		if n := strings.Count(output, "Error: "); n != 1 {
			t.Errorf("%s: %d errors, want one:\n%s", attributes, n, output)
		}
	}
}

func TestSuspiciousSchedulesGiveWarningsAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	odd := `trigger {
		name       = "t"
		expression = "*/7 * * * *"
	}
	trigger {
		name       = "u"
		expression = "30 2 * * *"
		timezone   = "Europe/Berlin"
	}`
	d := f.directory(t, f.config(job(hook+odd)))
	mustSay(t, d.must(t, "plan"),
		"Uneven steps", `trigger["t"].expression:`, "Daylight saving changes fires", `trigger["u"].expression:`)
	mustSay(t, d.must(t, "apply", "-auto-approve"), "Uneven steps")
	mustSay(t, d.must(t, "plan"), "No changes.")
	quiet := f.directory(t, f.config(job(hook+daily))).must(t, "plan")
	if strings.Count(quiet, "Warning: ") > 1 { // the development override warns once
		t.Errorf("an ordinary schedule gives a warning:\n%s", quiet)
	}
}
