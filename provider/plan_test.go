package provider_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// warningsOf returns Terraform's output from the first warning on, without notes about Terraform itself.
func warningsOf(t *testing.T, output string) string {
	t.Helper()
	notes := regexp.MustCompile(`(?s)Warning: Provider development overrides.*?published\s+releases\.\n`)
	output = notes.ReplaceAllString(output, "")
	at := strings.Index(output, "Warning: ")
	if at < 0 {
		t.Fatalf("no warning in:\n%s", output)
	}
	rest, _, _ := strings.Cut(output[at:], "\nNote: ")
	return strings.Trim(strings.TrimRight(rest, " \n"), "─") + "\n"
}

// exitCode runs a command with a meaningful exit code.
func (d directory) exitCode(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	output, err := d.terraform(t, arguments...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return output, exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return output, 0
}

// daytime is an hour in Tokyo, which has no daylight saving, at least 5 h from now. So at any time,
// a daily fire at that hour and one in the next hour are still to come, on the same day.
type daytime struct {
	now  time.Time // in Tokyo
	hour int
}

func newDaytime(t *testing.T) daytime {
	t.Helper()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().In(tokyo)
	first := now.Add(5 * time.Hour)
	if first.Hour() == 23 {
		first = first.Add(time.Hour)
	}
	return daytime{now, first.Hour()}
}

// stable replaces hours and days, which depend on the time of the test.
func (d daytime) stable(output string) string {
	instants := regexp.MustCompile(`[A-Z][a-z]{2} (\d{4}-\d\d-\d\d) (\d\d):(\d\d) \+09:00`)
	start := ""
	output = instants.ReplaceAllStringFunc(output, func(found string) string {
		parts := instants.FindStringSubmatch(found)
		if start == "" {
			start = parts[1]
		}
		from, _ := time.Parse(time.DateOnly, start)
		at, _ := time.Parse(time.DateOnly, parts[1])
		hour := strings.NewReplacer(fmt.Sprintf("%02d", d.hour), "HH", fmt.Sprintf("%02d", d.hour+1), "H1").Replace(parts[2])
		return fmt.Sprintf("Day yyyy-mm-%02d %s:%s +09:00", int(at.Sub(from).Hours()/24), hour, parts[3])
	})
	output = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:30:00Z`).ReplaceAllString(output, "yyyy-mm-ddThh:30:00Z")
	output = regexp.MustCompile(`\(\d+ unchanged attributes`).ReplaceAllString(output, "(some unchanged attributes")
	return strings.NewReplacer(fmt.Sprintf("0 30 %d *", d.hour), "0 30 H *", fmt.Sprintf("0 30 %d *", d.hour+1), "0 30 H1 *").Replace(output)
}

func tokyo(name string, hour int) string {
	return fmt.Sprintf("trigger {\n  name       = %q\n  expression = \"0 30 %d * * ?\"\n  timezone   = \"Asia/Tokyo\"\n}\n", name, hour)
}

func TestPlanShowsHowFiresChange(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		day := newDaytime(t)
		d := f.directory(t, f.config(job(hook+tokyo("moved", day.hour)+tokyo("removed", day.hour)+tokyo("same", day.hour))))
		d.must(t, "apply", "-auto-approve")
		d.rewrite(t, f.config(job(hook+tokyo("moved", day.hour+1)+tokyo("new", day.hour)+tokyo("same", day.hour))))
		golden(t, "testdata/plan/fires.txt", day.stable(warningsOf(t, d.must(t, "plan"))))
		const title = "Warning: Fires change: crm/nightly"
		if output := d.must(t, "apply", "-auto-approve"); strings.Count(output, title) != 1 {
			t.Errorf("want %q once in an apply:\n%s", title, output)
		}
		if output := d.must(t, "plan"); strings.Contains(output, title) || !strings.Contains(output, "No changes.") {
			t.Errorf("the plan after it warns again:\n%s", output)
		}
		// A change of other attributes leaves the fires and next fire times alone.
		d.rewrite(t, f.config(job("description = \"x\"\n"+hook+tokyo("moved", day.hour+1)+tokyo("new", day.hour)+tokyo("same", day.hour))))
		output := d.must(t, "apply", "-auto-approve")
		if strings.Contains(output, "Fires change") || strings.Contains(output, "next_fire_times") {
			t.Errorf("a change of a description changes fires:\n%s", output)
		}
	})
}

func TestPlanShowsHowFiresOfIntervalsAndCalendarsChange(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	trigger := func(expression, more string) string {
		block := fmt.Sprintf("trigger {\n  name = \"t\"\n  expression = %q\n  timezone = \"UTC\"\n%s}\n", expression, more)
		return f.config(job(hook+block) + calendar("rule {\n weekdays = [\"SAT\", \"SUN\"]\n}"))
	}
	d := f.directory(t, trigger("rate(12h)", ""))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, trigger("rate(24h)", ""))
	mustSay(t, d.must(t, "plan"), "Fires change: crm/nightly", "Trigger t, times in UTC:", "next 14 days",
		"The new fires count from the time of the apply.")
	d.rewrite(t, trigger("delay(30s)", ""))
	mustSay(t, d.must(t, "plan"), "Trigger t counts from the end of each run, so its fires are not known ahead.")
	d.rewrite(t, trigger("0 0 2 * * ?", ""))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, trigger("0 0 2 * * ?", "enabled = false\n"))
	mustSay(t, d.must(t, "plan"), "Disabled trigger t, times in UTC:", "next 14 days 14 removed")
	d.rewrite(t, trigger("0 0 2 * * ?", "jitter = \"1h\"\n"))
	mustSay(t, d.must(t, "plan"), "next 24 hours 1 moved", "later", "next 14 days 14 moved up to")
	d.rewrite(t, trigger("0 2 * * *", ""))
	if output := d.must(t, "plan"); strings.Contains(output, "Fires change") {
		t.Errorf("the same fires, written in another way, change:\n%s", output)
	}
	d.rewrite(t, trigger("0 0 2 * * ?", "calendar = carillon_calendar.c.name\n"))
	mustSay(t, d.must(t, "plan"), "Fires change: crm/nightly", "next 14 days 4 removed")
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, strings.Replace(trigger("0 0 2 * * ?", "calendar = carillon_calendar.c.name\n"), `"SAT", `, "", 1))
	mustSay(t, d.must(t, "plan"), "Fires change: crm/nightly", "next 14 days 2 added") // no attribute of the job changes
}

// undated replaces the dates of daylight saving, which depend on the year.
func undated(output string) string {
	return regexp.MustCompile(`\d{4}-\d\d-\d\dT`).ReplaceAllString(output, "yyyy-mm-ddT")
}

func TestStoryDaylightSavingWarningIsShownOnceAndResolved(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		berlin := func(rule, acknowledge string) string {
			return f.config(job(hook + acknowledge +
				"trigger {\n  name       = \"berlin\"\n  expression = \"0 30 2 * * ?\"\n  timezone   = \"Europe/Berlin\"\n" + rule + "}\n"))
		}
		d := f.directory(t, berlin("", ""))
		golden(t, "testdata/plan/daylight_saving.txt", undated(warningsOf(t, d.must(t, "plan"))))
		const title = "Warning: Daylight saving changes fires"
		output := d.must(t, "apply", "-auto-approve")
		if strings.Count(output, title) != 1 || strings.Contains(output, "more similar warning") {
			t.Errorf("want %q once in an apply:\n%s", title, output)
		}
		for _, answered := range []string{
			berlin("  gap = \"skip\"\n", ""), berlin("  gap = \"next\"\n", ""), berlin("", "acknowledge = [\"dst\"]\n"),
		} {
			d.rewrite(t, answered)
			if output := d.must(t, "plan"); strings.Contains(output, title) {
				t.Errorf("it is answered, and said again:\n%s", output)
			}
			if output := d.must(t, "apply", "-auto-approve"); strings.Contains(output, title) {
				t.Errorf("it is answered, and said again by an apply:\n%s", output)
			}
			mustChangeNothing(t, d)
		}
		d.rewrite(t, berlin("", "acknowledge = [\"dts\"]\n"))
		d.mustFail(t, []string{"plan"}, `acknowledge[0]: "dts" is not the code of a warning; did you mean dst?`)
	})
}

// The calendar is in the same plan.
func TestFiresThatACalendarMovesCauseAWarningAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	trigger := "trigger {\n  name = \"t\"\n  expression = \"0 0 8 * * ?\"\n  timezone = \"UTC\"\n" +
		"  calendar = carillon_calendar.c.name\n  on_excluded = \"next_included\"\n}\n"
	d := f.directory(t, f.config(job(hook+trigger)+calendar("rule {\n weekdays = [\"SAT\", \"SUN\"]\n}")))
	mustSay(t, d.must(t, "plan"), "A calendar moves fires to another hour: crm/nightly", "(moved_hour)")
	output := d.must(t, "apply", "-auto-approve")
	if n := strings.Count(output, "A calendar moves fires to another hour"); n != 1 {
		t.Errorf("an apply warns %d times, want once:\n%s", n, output)
	}
}

func TestWarningsOfManyJobsAreSummedUp(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(app+`
		resource "carillon_job" "j" {
		  for_each = toset(["a", "b", "c", "d", "e", "f", "g"])
		  app      = carillon_app.a.name
		  name     = each.key
		  target {
		    webhook { url = "https://example.com/hook" }
		  }
		  dynamic "trigger" {
		    for_each = toset(["t1", "t2", "t3", "t4", "t5"])
		    content {
		      name       = trigger.key
		      expression = "30 2 * * *"
		      timezone   = "Europe/Berlin"
		    }
		  }
		}
	`))
	for _, command := range [][]string{{"plan"}, {"apply", "-auto-approve"}} {
		output := d.must(t, command...)
		if n := strings.Count(output, "Warning: Daylight saving changes fires: "); n != 4 { // three jobs and the rest
			t.Errorf("%v: %d warnings, want 4:\n%s", command, n, output)
		}
		mustSay(t, output, "Daylight saving changes fires: more jobs", "and 2 more (dst)", "(and 3 more similar warnings elsewhere)")
	}
}

// Terraform plans one job after the other. Here, the nearest clock changes come last.
func TestNearestOfManyWarningsAreShownInFull(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	jobs := func(name, years, more string) string {
		return fmt.Sprintf(`
		resource "carillon_job" %[1]q {
		  for_each = %[2]s
		  app      = carillon_app.a.name
		  name     = "%[1]s-${each.key}"
		  target {
		    webhook { url = "https://example.com/hook" }
		  }
		  trigger {
		    name       = "t"
		    expression = "30 2 * * *"
		    timezone   = "Europe/Berlin"
		    start_at   = "${each.value}-01-01T00:00:00Z"
		  }
		  %[3]s
		}
		`, name, years, more)
	}
	d := f.directory(t, f.config(app+jobs("later", "{ a = 2041, b = 2041, c = 2041, d = 2041, e = 2041 }", "")+
		jobs("sooner", "{ a = 2036, b = 2035, c = 2034, d = 2033 }", "depends_on = [carillon_job.later]")))
	output := d.must(t, "plan")
	for _, nearest := range []string{"b", "c", "d"} {
		mustSay(t, output, "Warning: Daylight saving changes fires: crm/sooner-"+nearest)
	}
	if n := strings.Count(output, "Warning: Daylight saving changes fires: crm/later-"); n != 3 {
		t.Errorf("%d later ones in full, want the first 3:\n%s", n, output)
	}
	mustSay(t, output, "Warning: Daylight saving changes fires: more jobs")
}

// A fire that passes is no drift, without a change of plan or installation.
func TestRefreshFindsNoDriftAfterFires(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+
		"trigger {\n  name = \"t\"\n  expression = \"* * * * * ?\"\n  timezone = \"UTC\"\n}\n"+
		"trigger {\n  name = \"u\"\n  expression = \"@every 1s\"\n}\n")))
	d.must(t, "apply", "-auto-approve")
	before, err := f.readJob(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.fire(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := f.readJob(t.Context())
	if err != nil || after.Triggers["t"].NextFireTime.Equal(*before.Triggers["t"].NextFireTime) {
		t.Fatalf("the next fire time is still %v, %v", after.Triggers["t"].NextFireTime, err)
	}
	for _, arguments := range [][]string{
		{"plan", "-refresh-only", "-detailed-exitcode"}, {"plan", "-detailed-exitcode"}, {"plan", "-refresh=false", "-detailed-exitcode"},
	} {
		if output, code := d.exitCode(t, arguments...); code != 0 {
			t.Errorf("terraform %v exits with %d:\n%s", arguments, code, output)
		}
	}
	// A change outside of Terraform is drift.
	if _, err := f.outside.PauseJob(t.Context(), client.Pausable{App: "crm", Job: "nightly"}, dispatcher.PauseRequest{},
		client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	if output, code := d.exitCode(t, "plan", "-refresh-only", "-detailed-exitcode"); code != 2 {
		t.Errorf("a pause: terraform exits with %d, want 2:\n%s", code, output)
	}
}

// A calendar is a separate resource: if it moves fires, the jobs do not drift.
func TestChangedCalendarIsNoDriftOfJobs(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(date string) string {
		return f.config(job(hook+
			"trigger {\n  name = \"t\"\n  expression = \"0 0 0 1 1 ?\"\n  timezone = \"UTC\"\n  calendar = carillon_calendar.c.name\n}\n") +
			calendar("rule {\n dates = [\""+date+"\"]\n}"))
	}
	d := f.directory(t, config("12-25"))
	d.must(t, "apply", "-auto-approve")
	before, err := f.readJob(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.rewrite(t, config(before.Triggers["t"].NextFireTime.Format(time.DateOnly)))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "Fires change: crm/nightly", "0 added, 1 changed")
	after, err := f.readJob(t.Context())
	if err != nil || after.Triggers["t"].NextFireTime.Equal(*before.Triggers["t"].NextFireTime) {
		t.Fatalf("the next fire time is still %v, %v", after.Triggers["t"].NextFireTime, err)
	}
	if output, code := d.exitCode(t, "plan", "-refresh-only", "-detailed-exitcode"); code != 0 {
		t.Errorf("terraform exits with %d:\n%s", code, output)
	}
}

func TestStoryDriftIsShownAndCorrected(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		day := newDaytime(t)
		d := f.directory(t, f.config(job(hook+tokyo("t", day.hour))))
		d.must(t, "apply", "-auto-approve")
		if err := f.change(t.Context(), func(job *dispatcher.Job) {
			trigger := job.Triggers["t"]
			trigger.Expression = fmt.Sprintf("0 30 %d * * ?", day.hour+1)
			job.Triggers["t"] = trigger
		}); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/plan/drift.txt", day.stable(d.must(t, "plan")))
		d.must(t, "apply", "-auto-approve")
		mustChangeNothing(t, d)
	})
}

func TestPausedJobsAndStoppedAppsAreReportedInEveryPlan(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		d := f.directory(t, f.config(job(hook+daily)))
		d.must(t, "apply", "-auto-approve")
		pause := func(trigger string, paused bool) {
			of := client.Pausable{App: "crm", Job: "nightly", Trigger: trigger}
			_, err := f.outside.PauseJob(t.Context(), of, dispatcher.PauseRequest{Reason: "a migration"}, client.Condition{Existing: true})
			if !paused {
				_, err = f.outside.ResumeJob(t.Context(), of, client.Condition{Existing: true})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		undated := func(output string) string {
			return regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(warningsOf(t, output), "yyyy-mm-ddThh:mm:ssZ")
		}
		pause("", true)
		for range 2 {
			output := d.must(t, "plan")
			mustSay(t, output, "No changes.")
			golden(t, "testdata/plan/paused_job.txt", undated(output))
		}
		pause("", false)
		pause("t", true)
		golden(t, "testdata/plan/paused_trigger.txt", undated(d.must(t, "plan")))
		pause("t", false)
		until := time.Date(2099, 5, 1, 10, 0, 0, 0, time.UTC)
		for name, asked := range map[string]dispatcher.AppPauseRequest{
			"app":    {Reason: "a migration", Until: &until},
			"labels": {Labels: input.Labels{"team": "payments"}},
		} {
			added, err := f.outside.PauseApp(t.Context(), "crm", asked)
			if err != nil {
				t.Fatal(err)
			}
			output := d.must(t, "plan")
			mustSay(t, output, "No changes.")
			golden(t, "testdata/plan/paused_"+name+".txt", undated(output))
			if err := f.outside.EndAppPause(t.Context(), "crm", added.ID); err != nil {
				t.Fatal(err)
			}
		}
		suspend := func(ctx context.Context, suspended bool) {
			_, err := f.outside.SetBounds(ctx, "crm", func(b *target.Bounds) { b.Suspended, b.SuspendedReason = suspended, "unpaid bill" })
			if err != nil {
				t.Fatal(err)
			}
		}
		suspend(t.Context(), true)
		golden(t, "testdata/plan/suspended_app.txt", undated(d.must(t, "plan")))
		suspend(t.Context(), false)
		if output := d.must(t, "plan"); strings.Contains(output, "Suspended") || strings.Contains(output, "Paused") {
			t.Errorf("all of it runs again, and the plan warns:\n%s", output)
		}
	})
}

func TestPausesOfManyJobsAreSummedUp(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(app+`
		resource "carillon_job" "j" {
		  for_each = toset(["a", "b", "c", "d", "e", "f", "g"])
		  app      = carillon_app.a.name
		  name     = each.key
		  target {
		    webhook { url = "https://example.com/hook" }
		  }
		}
	`))
	d.must(t, "apply", "-auto-approve")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		if _, err := f.outside.PauseJob(t.Context(), client.Pausable{App: "crm", Job: name}, dispatcher.PauseRequest{},
			client.Condition{Existing: true}); err != nil {
			t.Fatal(err)
		}
	}
	output := d.must(t, "plan")
	if n := strings.Count(output, "Warning: Paused: crm/"); n != 3 {
		t.Errorf("%d jobs in full, want 3:\n%s", n, output)
	}
	mustSay(t, output, "Warning: Paused: more jobs", "(and 3 more similar warnings elsewhere)")
	if n := strings.Count(d.must(t, "plan", "-refresh-only"), "Warning: Paused: crm/"); n != 3 {
		t.Errorf("-refresh-only: %d jobs in full, want 3", n)
	}
}

// The app is the first thing of which a plan says that it does not exist. An app of the same plan is not missing.
func TestPlanWarnsOfAMissingApp(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(strings.Replace(job(hook+daily), "carillon_app.a.name", `"nope"`, 1)+
		"resource \"carillon_calendar\" \"c\" {\n  app = \"nope\"\n  name = \"c\"\n}\n"))
	output := d.must(t, "plan")
	mustSay(t, output, "Warning: The app does not exist: nope", `There is no app "nope" yet.`)
	if n := strings.Count(output, "There is no app"); n != 1 {
		t.Errorf("the plan warns %d times, want once:\n%s", n, output)
	}
	d.mustFail(t, []string{"apply", "-auto-approve"}, "The app does not exist (not_found)")
	d.rewrite(t, f.config(job(hook+daily)))
	if output := d.must(t, "plan"); strings.Contains(output, "does not exist") {
		t.Errorf("the plan creates the app, and yet warns:\n%s", output)
	}
}

// Terraform writes 1 for the 1.0 that the API has; that is no change.
func TestSpellingOfNumbersInAPayloadIsNoChange(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+daily+"payload = jsonencode({ a = 1 })\n")))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, f.config(job(hook+daily+"payload = \"{\\\"a\\\": 1.0}\"\n")))
	mustChangeNothing(t, d)
}
