package provider_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// renames is the directory of this file's golden files.
const renames = "testdata/rename/"

// jobNamed returns the configuration of a job with another name.
func jobNamed(name, attributes string) string {
	return strings.Replace(job(attributes), `"nightly"`, `"`+name+`"`, 1)
}

// later returns a trigger at an hour in Tokyo, with more of its attributes.
func later(name string, hour int, more string) string {
	return strings.Replace(tokyo(name, hour), "\n}", "\n"+more+"}", 1)
}

// runsOf returns the ids of the runs listed under a job's name in app crm.
func (f *fixture) runsOf(t *testing.T, job string) []string {
	t.Helper()
	list, err := f.outside.Runs(t.Context(), dispatcher.RunQuery{App: "crm", Job: job})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, run := range list.Items {
		ids = append(ids, run.ID)
	}
	return ids
}

// jobOf returns a job of app crm.
func (f *fixture) jobOf(t *testing.T, name string) dispatcher.Job {
	t.Helper()
	job, err := f.outside.Job(t.Context(), "crm", name)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// fireTimes returns the next fire times of triggers by name. They depend on H and jitter.
func fireTimes(job dispatcher.Job) map[string]string {
	all := map[string]string{}
	for name, t := range job.Triggers {
		all[name] = t.NextFireTime.String() + " at " + t.DueAt.String()
	}
	return all
}

const hashed = "trigger {\n  name       = \"h\"\n  expression = \"H H * * *\"\n  jitter     = \"1h\"\n}\n"

// A story: a job is renamed. It stays the same job, and a second plan is empty.
func TestRenamedJobKeepsItsHistoryAndFires(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+hashed)))
	d.must(t, "apply", "-auto-approve")
	if _, err := f.outside.RunJob(t.Context(), "crm", "nightly"); err != nil {
		t.Fatal(err)
	}
	before, runs := f.jobOf(t, "nightly"), f.runsOf(t, "nightly")
	d.rewrite(t, f.config(jobNamed("reports", hook+hashed)))
	output := d.must(t, "plan")
	golden(t, renames+"job.txt", warningsOf(t, output))
	mustSay(t, output, `~ id = "crm/nightly" -> "crm/reports"`, `~ name = "nightly" -> "reports"`, "0 to add, 1 to change, 0 to destroy.")
	output = d.must(t, "apply", "-auto-approve")
	if n := strings.Count(output, "Warning: Rename: "); n != 1 {
		t.Errorf("an apply warns %d times, want once:\n%s", n, output)
	}
	after := f.jobOf(t, "reports")
	if !maps.Equal(fireTimes(after), fireTimes(before)) || after.CreatedAt != before.CreatedAt || after.Revision != before.Revision+1 {
		t.Errorf("the job was %+v and is %+v", before, after)
	}
	if got := f.runsOf(t, "reports"); len(got) != 1 || !slices.Equal(got, runs) {
		t.Errorf("runs %v, want %v", got, runs)
	}
	mustChangeNothing(t, d)
	mustSay(t, d.must(t, "state", "show", "carillon_job.j"), `id = "crm/reports"`, `name = "reports"`)
}

// A story: a job and a trigger are renamed together with another change.
func TestJobAndTriggerAreRenamedWithAnotherChange(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f, day := newFixture(t), newDaytime(t)
	d := f.directory(t, f.config(job(hook+tokyo("old", day.hour)+tokyo("same", day.hour))))
	d.must(t, "apply", "-auto-approve")
	if _, err := f.outside.PauseJob(t.Context(), client.Pausable{App: "crm", Job: "nightly", Trigger: "old"}, dispatcher.PauseRequest{},
		client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	const changed = "description = \"reports of sales\"\n"
	d.rewrite(t, f.config(jobNamed("reports", changed+hook+later("new", day.hour+1, "  renamed_from = \"old\"\n")+tokyo("same", day.hour))))
	golden(t, renames+"both.txt", day.stable(warningsOf(t, d.must(t, "plan", "-refresh=false"))))
	d.must(t, "apply", "-auto-approve")
	after := f.jobOf(t, "reports")
	if _, there := after.Triggers["old"]; there || !after.Triggers["new"].Paused || after.Description != "reports of sales" {
		t.Errorf("the job is %+v", after)
	}
	mustChangeNothing(t, d)
}

// A story: a trigger is renamed. Its renamed_from may stay, and be removed later without a change on the server.
func TestRenamedTriggerKeepsItsFires(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+hashed)))
	d.must(t, "apply", "-auto-approve")
	before := fireTimes(f.jobOf(t, "nightly"))["h"]
	renamed := strings.Replace(hashed, `"h"`, "\"minutely\"\n  renamed_from = \"h\"", 1)
	d.rewrite(t, f.config(job(hook+renamed)))
	output := d.must(t, "plan")
	golden(t, renames+"trigger.txt", warningsOf(t, output))
	d.must(t, "apply", "-auto-approve")
	if after := fireTimes(f.jobOf(t, "nightly")); after["minutely"] != before || len(after) != 1 {
		t.Errorf("the trigger fires at %v, want %s", after, before)
	}
	mustSay(t, d.must(t, "state", "show", "carillon_job.j"), `next_fire_times = { "minutely" = `)
	mustChangeNothing(t, d)
	revision := f.jobOf(t, "nightly").Revision
	d.rewrite(t, f.config(job(hook+strings.Replace(renamed, "  renamed_from = \"h\"", "", 1))))
	output = d.must(t, "apply", "-auto-approve")
	golden(t, renames+"done.txt", changesOf(t, output))
	if after := f.jobOf(t, "nightly").Revision; after != revision {
		t.Errorf("revision %d became %d, although nothing changed", revision, after)
	}
	mustChangeNothing(t, d)
}

// changesOf returns the resources in a plan, without notes about Terraform itself.
func changesOf(t *testing.T, output string) string {
	t.Helper()
	_, changes, found := strings.Cut(output, "will perform the following actions:")
	changes, _, ends := strings.Cut(changes, "\nPlan: ")
	if !found || !ends {
		t.Fatalf("no plan in:\n%s", output)
	}
	return strings.TrimSpace(changes) + "\n"
}

// A story: two triggers swap their names, which their definitions do not show.
func TestTriggersSwapTheirNames(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	swap := func(a, b string) string {
		return f.config(job(hook + "trigger {\n  name       = \"a\"\n  expression = \"H H * * *\"\n" + a + "}\n" +
			"trigger {\n  name       = \"b\"\n  expression = \"H H * * *\"\n" + b + "}\n"))
	}
	d := f.directory(t, swap("", ""))
	d.must(t, "apply", "-auto-approve")
	before := fireTimes(f.jobOf(t, "nightly"))
	if before["a"] == before["b"] {
		t.Fatalf("both fire at %s, so the test proves nothing", before["a"])
	}
	d.rewrite(t, swap("  renamed_from = \"b\"\n", "  renamed_from = \"a\"\n"))
	golden(t, renames+"swap.txt", warningsOf(t, d.must(t, "plan")))
	d.must(t, "apply", "-auto-approve")
	if after := fireTimes(f.jobOf(t, "nightly")); after["a"] != before["b"] || after["b"] != before["a"] {
		t.Errorf("they fire at %v, want %v with a and b exchanged", after, before)
	}
	mustChangeNothing(t, d)
	d.rewrite(t, swap("", ""))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	if after := fireTimes(f.jobOf(t, "nightly")); after["a"] != before["b"] {
		t.Errorf("they fire at %v: they swapped again", after)
	}
}

// A story: a taken name is reported by the plan, or by the apply if it was taken in between.
func TestTakenNameIsRefusedInWords(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+daily)))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, f.config(jobNamed("reports", hook+daily)))
	d.must(t, "plan", "-out=plan")
	other := f.jobOf(t, "nightly")
	other.Name = "reports"
	if _, err := f.outside.PutJob(t.Context(), other, client.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, renames+"taken_at_plan.txt", errorsOf(d.mustFail(t, []string{"plan"})))
	d.mustFail(t, []string{"apply", "plan"}, "The name is taken")
	if after := f.jobOf(t, "nightly"); after.Revision != 1 {
		t.Errorf("the job is %+v, and was not to change", after)
	}
	if err := f.outside.DeleteJob(t.Context(), "crm", "reports", client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	d.mustFail(t, []string{"plan"}, "Error: The name is taken", "crm/reports was deleted, and its history is kept under this name")
	d.mustFail(t, []string{"apply", "plan"}, "Error: The name is taken")
}

// Impossible renames are reported at their line: by validate if they need no state, and otherwise by plan.
func TestImpossibleRenamesAreRefusedAtTheirLine(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	single := func(name, old string) string {
		return "trigger {\n  name         = \"" + name + "\"\n  expression   = \"0 0 2 * * ?\"\n  renamed_from = \"" + old + "\"\n}\n"
	}
	d := f.directory(t, f.config(job(hook+single("a", "t")+single("b", "t"))))
	golden(t, renames+"twice.txt", errorsOf(d.mustFail(t, []string{"validate"})))
	d.rewrite(t, f.config(job(hook+daily+single("new", "t"))))
	golden(t, renames+"declared_too.txt", errorsOf(d.mustFail(t, []string{"validate"})))
	d.rewrite(t, f.config(job(hook+single("new", "t")))) // a new installation never had the old name
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	d.rewrite(t, f.config(job(hook+single("newer", "nwe"))))
	golden(t, renames+"unknown.txt", errorsOf(d.mustFail(t, []string{"plan"})))
	d.rewrite(t, f.config(job(hook+single("newer", "new"))))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

// H and jitter hash the original names. The plan of a rename knows both names, and shows the new
// fires. A later plan knows only the current names, and shows no wrong fires.
func TestPlanShowsNoWrongFiresOfRenamedTriggers(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+hashed)))
	d.must(t, "apply", "-auto-approve")
	at := func(hour string) string {
		return f.config(jobNamed("reports", hook+strings.Replace(hashed, "H H *", "H "+hour+" *", 1)))
	}
	d.rewrite(t, at("3"))
	output := d.must(t, "plan")
	mustSay(t, output, "Fires change: crm/reports", "Trigger h, times in UTC:")
	d.must(t, "apply", "-auto-approve")
	if due := f.jobOf(t, "reports").Triggers["h"].DueAt.UTC().Format("Mon 2006-01-02 15:04:05 -07:00"); !strings.Contains(output, due) {
		t.Errorf("the trigger fires at %s, which the plan did not show:\n%s", due, output)
	}
	d.rewrite(t, at("4"))
	output = d.must(t, "plan")
	mustSay(t, output, "Fires change: crm/reports", "Only the server knows that name, so its fires are not shown.")
	if strings.Contains(output, "times in UTC") {
		t.Errorf("the plan shows fires that it cannot know:\n%s", output)
	}
}

// A trigger with a new name and without renamed_from is a new trigger.
func TestPlanReportsLossesWithoutRenamedFrom(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f, day := newFixture(t), newDaytime(t)
	d := f.directory(t, f.config(job(hook+tokyo("berlin", day.hour))))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, f.config(job(hook+tokyo("frankfurt", day.hour))))
	golden(t, renames+"another_trigger.txt", day.stable(warningsOf(t, d.must(t, "plan"))))
}

// The rename succeeds and the rest of the update is refused: the state has the new names, and the next apply goes on.
func TestRenameIsKeptIfTheRestOfTheUpdateFails(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	allow := func(triggers int) {
		t.Helper()
		_, err := f.outside.SetBounds(t.Context(), "crm", func(b *target.Bounds) { b.Quotas.Triggers = triggers })
		if err != nil {
			t.Fatal(err)
		}
	}
	d := f.directory(t, f.config(job(hook+"trigger {\n  name       = \"old\"\n  expression = \"0 0 2 * * ?\"\n}\n")))
	d.must(t, "apply", "-auto-approve")
	allow(1)
	d.rewrite(t, f.config(jobNamed("reports", hook+
		"trigger {\n  name = \"new\"\n  expression = \"0 0 2 * * ?\"\n  renamed_from = \"old\"\n}\n"+
		"trigger {\n  name = \"more\"\n  expression = \"@hourly\"\n}\n")))
	d.mustFail(t, []string{"apply", "-auto-approve"}, "A quota of the app is used up")
	state := d.must(t, "state", "show", "carillon_job.j")
	mustSay(t, state, `id = "crm/reports"`, "trigger {", `name = "new"`, `renamed_from = "old"`)
	if strings.Contains(state, "more") {
		t.Errorf("the state has what was refused:\n%s", state)
	}
	allow(2)
	output := d.must(t, "apply", "-auto-approve")
	if strings.Contains(output, "Warning: Rename") {
		t.Errorf("the second apply renames again:\n%s", output)
	}
	if after := f.jobOf(t, "reports"); len(after.Triggers) != 2 {
		t.Errorf("the job is %+v", after)
	}
	mustChangeNothing(t, d)
}

// Addresses are Terraform's own names. A moved block renames no job, and makes a changed key of for_each a rename.
func TestMovedBlocksAndRenamesAreIndependent(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(label, name, more string) string {
		return f.config(strings.Replace(jobNamed(name, hook+daily), `"j"`, `"`+label+`"`, 1) + more)
	}
	moved := func(from, to string) string { return "moved {\n  from = " + from + "\n  to = " + to + "\n}\n" }
	d := f.directory(t, config("j", "nightly", ""))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, config("k", "nightly", moved("carillon_job.j", "carillon_job.k")))
	output := d.must(t, "apply", "-auto-approve")
	mustSay(t, output, "carillon_job.j has moved to carillon_job.k", "0 added, 0 changed, 0 destroyed")
	if strings.Contains(output, "Warning: Rename") {
		t.Errorf("another address renames the job:\n%s", output)
	}
	d.rewrite(t, config("l", "reports", moved("carillon_job.k", "carillon_job.l")))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "carillon_job.l will be updated in-place", "Warning: Rename: crm/nightly")
	mustChangeNothing(t, d)
}

// The job is renamed outside of Terraform. The plan renames it back, whether Terraform made or imported it.
func TestJobThatWasRenamedElsewhereIsRenamedBack(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+daily)))
	d.must(t, "apply", "-auto-approve")
	for _, imported := range []bool{false, true} {
		if imported {
			d.must(t, "state", "rm", "carillon_job.j")
			d.must(t, "import", "carillon_job.j", "crm/nightly")
		}
		if err := f.renameOutside(t.Context(), dispatcher.JobRename{Name: "reports"}); err != nil {
			t.Fatal(err)
		}
		output := d.must(t, "plan")
		mustSay(t, output, "Warning: Renamed outside of Terraform: crm/nightly",
			`Job crm/nightly was renamed to crm/reports by "terraform" at `,
			`~ name = "reports" -> "nightly"`, "0 to add, 1 to change, 0 to destroy")
		d.must(t, "apply", "-auto-approve")
		if list, err := f.outside.Jobs(t.Context(), "crm", input.Page{}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "nightly" {
			t.Errorf("the jobs are %+v, %v, want only nightly", list.Items, err)
		}
		mustChangeNothing(t, d)
	}
	if err := f.renameOutside(t.Context(), dispatcher.JobRename{Name: "reports"}); err != nil {
		t.Fatal(err)
	}
	d.rewrite(t, f.config(jobNamed("reports", hook+daily)))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 0 changed, 0 destroyed")
	mustChangeNothing(t, d)
}

// Another job got the former name of the renamed one: nothing happens to either before a person decides.
func TestRenamedJobIsFollowedAlthoughAnotherHasItsName(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+daily)))
	d.must(t, "apply", "-auto-approve")
	other := f.jobOf(t, "nightly")
	if err := f.renameOutside(t.Context(), dispatcher.JobRename{Name: "reports"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.outside.PutJob(t.Context(), other, client.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	d.mustFail(t, []string{"plan"}, "Error: The name is taken", "Job crm/nightly exists, so crm/reports cannot get its name.",
		"Warning: Renamed outside of Terraform: crm/nightly")
	d.rewrite(t, f.config(app))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 0 changed, 1 destroyed")
	if got := f.jobOf(t, "nightly").Revision; got != 1 {
		t.Errorf("the other job is at revision %d, want 1", got)
	}
	if _, err := f.outside.Job(t.Context(), "crm", "reports"); !client.IsNotFound(err) {
		t.Errorf("the renamed job is not deleted: %v", err)
	}
}

// A job that was renamed and deleted outside of Terraform is created again, under its own name.
func TestRenamedAndDeletedJobIsCreatedAgain(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+daily)))
	d.must(t, "apply", "-auto-approve")
	if err := f.renameOutside(t.Context(), dispatcher.JobRename{Name: "reports"}); err != nil {
		t.Fatal(err)
	}
	if err := f.outside.DeleteJob(t.Context(), "crm", "reports", client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1 added, 0 changed, 0 destroyed")
	mustChangeNothing(t, d)
}

func (f *fixture) renameOutside(ctx context.Context, rename dispatcher.JobRename) error {
	_, err := f.outside.RenameJob(ctx, "crm", "nightly", rename, client.Condition{Existing: true})
	return err
}
