package definitions

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// boundTests test the bounds that operators set for an app.
func boundTests() tests {
	return tests{
		"a job outside the bounds of its app is refused":                    testJobOutsideBounds,
		"an app without bounds gets the default ones":                       testDefaultBounds,
		"an app does not get the variables of a longer name":                testVariablesOfLongerName,
		"two apps do not differ by - and _ only":                            testFoldedNames,
		"only operators change bounds":                                      testBoundsOfOperators,
		"default bounds that are put again stay the default":                testBoundsWrittenBack,
		"an empty list of bounds allows none, a missing one is the default": testEmptyListsOfBounds,
		"a change of bounds names the jobs that it breaks":                  testBreaks,
		"a change of bounds names the jobs whose groups it breaks":          testBreaksOfGroups,
		"a suspended app does not fire, not even a new job":                 testSuspended,
		"the owner of a suspended app cannot lift the suspension":           testSuspendedOwner,
		"a suspended app accepts no manual run and no retry":                testSuspendedRuns,
		"jobs and triggers stay within their quotas":                        testQuotas,
		"two jobs at once do not pass a quota":                              testQuotaRace,
		"manual runs stay within their quota per minute":                    testManualRunQuota,
		"manual runs are refused while too many runs wait":                  testWaitingRunQuota,
		"two requests at once do not pass the quota of manual runs":         testManualRunRace,
		"the kept bytes of an app expire with its retention":                testBytesKept,
		"an import outside the bounds is refused":                           testImportOutsideBounds,
		"an app keeps its bounds when it is deleted and created again":      testBoundsOfDeletedApp,
	}
}

// secretJob returns a job of an app with a key that refers to a secret.
func secretJob(app, name, reference string) dispatcher.Job {
	j := fixture.Job(name, nil)
	j.App = app
	j.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: reference}}}
	return j
}

const bearerReference = "/target/webhook/auth/bearer/token/reference"

func testJobOutsideBounds(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Egress: target.EgressBounds{Hosts: []string{"*.example.org"}, Ports: []int{443}}})
	_, _, err := f.PutJob(t.Context(), fixture.Job("x", nil), fixture.At(fixture.T0))
	f.WantProblem("a host that is not listed", err, "bound_egress /target/webhook/url")
	_, err = f.Job(t.Context(), "shop", "x")
	fixture.WantError(t, "read what was refused", err, dispatcher.ErrNotFound)
	allowed := fixture.Job("x", nil)
	allowed.Target.Webhook.URL = "https://hooks.example.org/"
	f.Must(f.PutJob(t.Context(), allowed, fixture.At(fixture.T0)))
	allowed.Target.Webhook.URL = "https://hooks.example.org:8443/"
	_, _, err = f.PutJob(t.Context(), allowed, fixture.At(fixture.T0))
	f.WantProblem("a port that is not listed", err, "bound_egress /target/webhook/url")
}

func testDefaultBounds(t *testing.T, f *wing) {
	f.Must(f.PutJob(t.Context(), secretJob("shop", "own", "env:SECRET_SHOP_KEY"), fixture.At(fixture.T0)))
	f.Must(f.PutJob(t.Context(), secretJob("shop", "file", "file:shop/key"), fixture.At(fixture.T0)))
	_, _, err := f.PutJob(t.Context(), secretJob("shop", "other", "env:SECRET_BANK_KEY"), fixture.At(fixture.T0))
	f.WantProblem("a variable of another app", err, "bound_secret "+bearerReference)
	function := fixture.Job("function", nil)
	function.Target = target.Target{Lambda: &target.Lambda{
		Function: "arn:aws:lambda:eu-central-1:123456789012:function:pay", Timeout: target.DefaultTimeout,
	}}
	_, _, err = f.PutJob(t.Context(), function, fixture.At(fixture.T0))
	f.WantProblem("a function", err, "bound_function /target/lambda/function")
}

func testVariablesOfLongerName(t *testing.T, f *wing) {
	ctx, variable := t.Context(), "env:SECRET_SHOP_EU_KEY"
	f.Must(f.PutJob(ctx, secretJob("shop", "before", variable), fixture.At(fixture.T0)))
	f.DeclareApp("shop-eu")
	_, _, err := f.PutJob(ctx, secretJob("shop", "after", variable), fixture.At(fixture.T0))
	f.WantProblem("a variable of the app with the longer name", err, "bound_secret "+bearerReference)
	f.Must(f.PutJob(ctx, secretJob("shop-eu", "after", variable), fixture.At(fixture.T0)))
	stored, err := f.Job(ctx, "shop", "before")
	f.Must(err)
	if got := fixture.ProblemCodes(input.Problems(stored.Warnings)); len(got) != 1 || got[0] != "bound_secret "+bearerReference {
		t.Errorf("warnings of the job from before: %v, want bound_secret", got)
	}
	versions, err := f.JobsByID(ctx, []int64{run.JobID("shop", "before")})
	f.Must(err)
	if versions[0].Bounds.CheckTarget(versions[0].Job.App, versions[0].Job.Target) == nil {
		t.Error("a node would still attempt the job from before with the secret of the other app")
	}
	// An operator's list applies literally.
	f.Bound(target.Bounds{Secrets: []string{"env:SECRET_SHOP_*"}})
	f.Must(f.PutJob(ctx, secretJob("shop", "after", variable), fixture.At(fixture.T0)))
	f.Bound(target.Bounds{})
	f.Must(f.DeleteJob(ctx, "shop-eu", "after", fixture.At(fixture.T0)), f.DeleteApp(ctx, "shop-eu", fixture.At(fixture.T0)))
	f.Must(f.PutJob(ctx, secretJob("shop", "after", variable), fixture.At(fixture.T0)))
}

func testFoldedNames(t *testing.T, f *wing) {
	f.DeclareApp("pay-roll")
	_, _, err := f.PutApp(t.Context(), access.App{Name: "pay_roll", AppSpec: access.AppSpec{Enabled: true}}, fixture.At(fixture.T0))
	f.WantProblem("a name that variables do not tell apart", err, "name_taken /name")
	f.Must(f.DeleteApp(t.Context(), "pay-roll", fixture.At(fixture.T0)))
	f.DeclareApp("pay_roll")
}

func testBoundsOfOperators(t *testing.T, f *wing) {
	ctx := t.Context()
	app := access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{Weight: 100}}}
	_, _, err := f.PutApp(ctx, app, fixture.At(fixture.T0))
	f.WantProblem("a weight by the app's owner", err, "bound_operator /bounds")
	f.Must(f.PutApp(ctx, app, fixture.Operator(fixture.T0)))
	app.Bounds, app.Retention = nil, target.DefaultMostRetention+input.Duration(time.Hour)
	_, _, err = f.PutApp(ctx, app, fixture.At(fixture.T0))
	f.WantProblem("a retention beyond the quota", err, "bound_quota /retention")
	app.Retention = target.DefaultMostRetention
	stored, _, err := f.PutApp(ctx, app, fixture.At(fixture.T0))
	f.Must(err)
	if stored.Bounds.Weight != 100 {
		t.Errorf("weight %d after a change without bounds, want 100", stored.Bounds.Weight)
	}
}

func testBoundsWrittenBack(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Weight: 3})
	read, err := f.App(t.Context(), "shop")
	f.Must(err)
	f.Must(f.PutApp(t.Context(), read, fixture.At(fixture.T0))) // unchanged bounds need no operator
	read.Bounds.Weight = 4
	f.Must(f.PutApp(t.Context(), read, fixture.Operator(fixture.T0)))
	f.DeclareApp("shop-eu")
	_, _, err = f.PutJob(t.Context(), secretJob("shop", "x", "env:SECRET_SHOP_EU_KEY"), fixture.At(fixture.T0))
	f.WantProblem("a variable of another app, after the default was written back", err, "bound_secret "+bearerReference)
}

func testEmptyListsOfBounds(_ *testing.T, f *wing) {
	none := target.Bounds{Secrets: []string{}, Egress: target.EgressBounds{Hosts: []string{}, Ports: []int{}, Networks: []string{}}}
	for range 2 { // as declared, and as shown
		shown := f.Bound(none)
		if diff := cmp.Diff(none.WithDefaults("shop"), *shown.Bounds); diff != "" {
			f.Errorf("bounds with empty lists are shown as other ones (-want +got):\n%s", diff)
		}
		read, err := f.App(f.Context(), "shop")
		f.Must(err)
		if diff := cmp.Diff(shown.Bounds, read.Bounds); diff != "" {
			f.Errorf("and read as other ones (-want +got):\n%s", diff)
		}
		none = *read.Bounds
	}
	keyed := secretJob("shop", "keyed", "env:SECRET_SHOP_KEY")
	_, _, err := f.PutJob(f.Context(), keyed, fixture.Operator(fixture.T0))
	f.WantProblem("a job with a secret", err, "bound_secret "+bearerReference+
		", bound_egress /target/webhook/url, bound_egress /target/webhook/url")
	f.Bound(target.Bounds{})
	f.Put(keyed, fixture.T0)
}

func testBreaks(t *testing.T, f *wing) {
	const jobs = access.MaxBreaks + 20
	for i := range jobs {
		f.Put(fixture.Job(fmt.Sprintf("j%03d", i), nil), fixture.T0)
	}
	kept := fixture.Job("kept", nil)
	kept.Target.Webhook.URL = "https://hooks.example.org/"
	f.Put(kept, fixture.T0)
	app := f.Bound(target.Bounds{Egress: target.EgressBounds{Hosts: []string{"hooks.example.org"}}})
	if b := app.Breaks; b == nil || b.Count != jobs || len(b.Jobs) != access.MaxBreaks || b.Jobs[0].Job != "j000" {
		t.Fatalf("breaks: %+v, want %d jobs from j000 on, %d of them listed", app.Breaks, jobs, access.MaxBreaks)
	}
	if p := app.Breaks.Jobs[0].Problems; len(p) != 1 || p[0].Code != input.CodeBoundEgress {
		t.Errorf("problems of the first: %+v, want bound_egress", p)
	}
	listed, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 1000})
	f.Must(err)
	for _, j := range listed {
		if broken := len(j.Warnings) == 1 && j.Warnings[0].Code == input.CodeBoundEgress; broken == (j.Name == "kept") {
			t.Errorf("job %s is listed with warnings %+v", j.Name, j.Warnings)
		}
	}
	if again := f.Bound(*app.Bounds); again.Breaks != nil {
		t.Errorf("the same bounds again: %d breaks, want none: nothing changed", again.Breaks.Count)
	}
}

func testBreaksOfGroups(t *testing.T, f *wing) {
	for name, hosts := range map[string][]string{"inside": {"hooks"}, "outside": {"hooks", "elsewhere"}} {
		group := target.EndpointGroup{App: "shop", Name: name,
			EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{}}}
		for _, host := range hosts {
			group.Endpoints[host] = target.StaticEndpoint{URL: "https://" + host + ".example.org/"}
		}
		_, _, err := f.PutGroup(t.Context(), group, fixture.At(fixture.T0))
		f.Must(err)
		j := fixture.Job("to-"+name, nil)
		j.Target = target.Target{Group: &target.GroupTarget{Name: name}}
		j.Target.Group.SetDefaults()
		f.Put(j, fixture.T0)
	}
	app := f.Bound(target.Bounds{Egress: target.EgressBounds{Hosts: []string{"hooks.example.org"}}})
	want := `/target/group/name bound_egress group "outside", endpoints/elsewhere/url: host "elsewhere.example.org" is not one that ` +
		"app shop may call; its bounds allow hooks.example.org (egress.hosts)"
	got := ""
	if b := app.Breaks; b != nil && b.Count == 1 && len(b.Jobs) == 1 && b.Jobs[0].Job == "to-outside" && len(b.Jobs[0].Problems) == 1 {
		p := b.Jobs[0].Problems[0]
		got = p.Path + " " + p.Code + " " + p.Message
	}
	if got != want {
		t.Errorf("breaks = %+v, with %q; want the job to-outside with %q", app.Breaks, got, want)
	}
}

func testSuspended(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	by := target.Suspension{SuspendedBy: "operator", SuspendedAt: new(fixture.T0)}
	app := f.Bound(target.Bounds{Suspended: true, SuspendedReason: "unpaid"})
	if diff := cmp.Diff(by, app.Bounds.Suspension); diff != "" {
		t.Error("the suspension (-want +got):\n" + diff)
	}
	later := fixture.Operator(fixture.T0.Add(time.Hour))
	later.Actor = "another"
	app.Bounds.SuspendedReason = "still unpaid"
	app, _, err := f.PutApp(t.Context(), app, later)
	f.Must(err)
	if diff := cmp.Diff(by, app.Bounds.Suspension); diff != "" {
		t.Error("the suspension for another reason (-want +got):\n" + diff)
	}
	f.PutEvery("new", time.Minute)
	if due := f.DueAll(fixture.T0.Add(time.Hour)); len(due) != 0 {
		t.Errorf("a suspended app has %d due triggers, want none", len(due))
	}
	history, err := f.AppHistory(t.Context(), "shop", time.Time{}, fixture.T0)
	f.Must(err)
	if n := len(history.Switches); !strings.Contains(history.Suspended, "unpaid") || n == 0 || history.Switches[n-1].Enabled {
		t.Errorf("history: suspended %q, switches %v; want the reason, and one to suspended", history.Suspended, history.Switches)
	}
	if app = f.Bound(target.Bounds{}); app.Bounds.Suspension != (target.Suspension{}) {
		t.Errorf("after the suspension, the app shows %+v", app.Bounds.Suspension)
	}
	if due := f.DueAll(fixture.T0.Add(time.Hour)); len(due) != 2 {
		t.Errorf("after the suspension: %d due triggers, want 2", len(due))
	}
}

func testSuspendedOwner(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.Bound(target.Bounds{Suspended: true})
	for what, app := range map[string]access.App{
		"enables it":            {Name: "shop", AppSpec: access.AppSpec{Enabled: true}},
		"enables it once more":  {Name: "shop", AppSpec: access.AppSpec{Enabled: true, Description: "x"}},
		"disables it":           {Name: "shop"},
		"enables it at the end": {Name: "shop", AppSpec: access.AppSpec{Enabled: true}},
	} {
		stored, _, err := f.PutApp(t.Context(), app, fixture.At(fixture.T0))
		f.Must(err)
		if due := f.DueAll(fixture.T0.Add(time.Hour)); len(due) != 0 || !stored.Bounds.Suspended {
			t.Errorf("the owner %s: %d due triggers, suspended %t; want none, true", what, len(due), stored.Bounds.Suspended)
		}
	}
	_, _, err := f.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{}}},
		fixture.At(fixture.T0))
	f.WantProblem("bounds without the suspension", err, "bound_operator /bounds")
}

func testSuspendedRuns(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	run, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	f.Must(f.CancelRun(ctx, run.ID, fixture.At(fixture.T0)))
	waiting, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0.Add(time.Second)))
	f.Must(err)
	f.Bound(target.Bounds{Suspended: true, SuspendedReason: "unpaid"})
	_, err = f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.WantProblem("a manual run", err, "bound_suspended")
	_, err = f.RetryRun(ctx, run.ID, fixture.At(fixture.T0))
	f.WantProblem("a retry", err, "bound_suspended")
	adopted := f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Minute))
	if len(adopted) != 0 {
		t.Errorf("%d runs of a suspended app are adopted, want none", len(adopted))
	}
	shown, err := f.Store.Run(ctx, waiting.ID)
	f.Must(err)
	if !strings.Contains(shown.Held, "suspended (unpaid)") {
		t.Errorf("the waiting run is held by %q, want the suspension and its reason", shown.Held)
	}
	f.Bound(target.Bounds{})
	adopted = f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Minute))
	if len(adopted) != 1 {
		t.Errorf("%d runs are adopted after the suspension, want 1", len(adopted))
	}
}

func testQuotas(t *testing.T, f *wing) {
	ctx := t.Context()
	f.Bound(target.Bounds{Quotas: target.Quotas{Jobs: 2, Triggers: 3}})
	two := map[string]dispatcher.Trigger{"a": fixture.Every(time.Minute, fixture.T0), "b": fixture.Every(time.Minute, fixture.T0)}
	one := map[string]dispatcher.Trigger{"a": fixture.Every(time.Minute, fixture.T0)}
	f.Must(f.PutJob(ctx, fixture.Job("first", two), fixture.At(fixture.T0)))
	_, _, err := f.PutJob(ctx, fixture.Job("second", two), fixture.At(fixture.T0))
	f.WantProblem("a fourth trigger", err, "bound_quota /triggers")
	f.Must(f.PutJob(ctx, fixture.Job("second", one), fixture.At(fixture.T0)))
	_, _, err = f.PutJob(ctx, fixture.Job("third", nil), fixture.At(fixture.T0))
	f.WantProblem("a third job", err, "bound_quota /name")
	if err != nil && !strings.Contains(err.Error(), "2 (quotas.jobs)") {
		t.Errorf("the refusal %q does not name figure and bound", err)
	}
	f.Must(f.PutJob(ctx, fixture.Job("first", one), fixture.At(fixture.T0)))
	f.Must(f.PutJob(ctx, fixture.Job("second", two), fixture.At(fixture.T0)))
	f.Must(f.DeleteJob(ctx, "shop", "first", fixture.At(fixture.T0)))
	f.Must(f.PutJob(ctx, fixture.Job("third", one), fixture.At(fixture.T0)))
	app, err := f.AppWithUsage(ctx, "shop")
	f.Must(err)
	if want := (target.Usage{Jobs: 2, Triggers: 3}); *app.Usage != want {
		t.Errorf("usage %+v, want %+v", *app.Usage, want)
	}
	// Jobs beyond a lowered quota stay and can be changed; no more can be added.
	f.Bound(target.Bounds{Quotas: target.Quotas{Jobs: 1, Triggers: 1}})
	f.Must(f.PutJob(ctx, fixture.Job("second", two), fixture.At(fixture.T0)))
	_, _, err = f.PutJob(ctx, fixture.Job("fourth", nil), fixture.At(fixture.T0))
	f.WantProblem("one more job", err, "bound_quota /name")
}

// together calls do so many times at once and returns the number of successes, and the problems of the rest.
func together(times int, do func(i int) error) (passed int, problems []string) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range times {
		wg.Go(func() {
			err := do(i)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				passed++
			} else {
				problems = append(problems, fmt.Sprint(fixture.ProblemCodes(err)))
			}
		})
	}
	wg.Wait()
	return passed, problems
}

func testQuotaRace(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{Jobs: 3}})
	passed, problems := together(8, func(i int) error {
		_, _, err := f.PutJob(t.Context(), fixture.Job(fmt.Sprint("j", i), nil), fixture.At(fixture.T0))
		return err
	})
	if passed != 3 {
		t.Errorf("%d of 8 jobs were stored at once, want 3; the rest: %v", passed, problems)
	}
}

func testManualRunQuota(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	f.Bound(target.Bounds{Quotas: target.Quotas{ManualRunsPerMinute: 2}})
	run, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	f.Must(f.CancelRun(ctx, run.ID, fixture.At(fixture.T0)))
	f.Must(f.RetryRun(ctx, run.ID, fixture.At(fixture.T0.Add(time.Second))))
	_, err = f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0.Add(50*time.Second)))
	f.WantProblem("a third request in a minute", err, "bound_quota")
	if err != nil && !strings.Contains(err.Error(), "in 10 s") {
		t.Errorf("the refusal %q does not tell when to try again", err)
	}
	f.Must(f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0.Add(time.Minute))))
}

func testWaitingRunQuota(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	f.Bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 2}})
	first, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	f.Must(f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0.Add(time.Minute))))
	_, err = f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0.Add(2*time.Minute)))
	f.WantProblem("a third waiting run", err, "bound_quota")
	f.Must(f.CancelRun(ctx, first.ID, fixture.At(fixture.T0.Add(2*time.Minute))))
	f.Must(f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0.Add(3*time.Minute))))
}

func testManualRunRace(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.Bound(target.Bounds{Quotas: target.Quotas{ManualRunsPerMinute: 3}})
	passed, problems := together(8, func(int) error {
		_, err := f.RequestRun(t.Context(), "shop", "tick", nil, fixture.At(fixture.T0))
		return err
	})
	if passed != 3 {
		t.Errorf("%d of 8 manual runs were accepted at once, want 3; the rest: %v", passed, problems)
	}
}

func testBytesKept(t *testing.T, f *wing) {
	ctx, day := t.Context(), 24*time.Hour
	keep := func(bytes int64, now time.Time, want int64) {
		t.Helper()
		kept, err := f.KeepBytes(ctx, map[string]int64{"shop": bytes}, now)
		f.Must(err)
		if kept["shop"] != want {
			t.Errorf("%d bytes are kept, want %d", kept["shop"], want)
		}
	}
	f.Must(f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(2 * day)}},
		fixture.At(fixture.T0)))
	keep(100, fixture.T0, 100)
	keep(20, fixture.T0, 120)
	keep(3, fixture.T0.Add(2*day), 123)
	keep(0, fixture.T0.Add(3*day), 3)
}

func testImportOutsideBounds(t *testing.T, f *wing) {
	export := access.Export{
		Format: access.ExportFormat, Installation: "there", ExportedAt: fixture.T0, App: access.App{Name: "moved"},
		Jobs: []access.ExportedJob{{Job: secretJob("moved", "x", "env:SECRET_BANK_KEY")}},
	}
	_, err := f.ImportApp(t.Context(), export, fixture.At(fixture.T0))
	f.WantProblem("a job outside the bounds", err, "bound_secret /jobs/0/job"+bearerReference)
	export.App.Bounds = &target.Bounds{Secrets: []string{"env:SECRET_BANK_KEY"}}
	_, err = f.ImportApp(t.Context(), export, fixture.At(fixture.T0))
	f.WantProblem("bounds by a caller who is no operator", err, "bound_operator /bounds")
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
}

func testBoundsOfDeletedApp(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Suspended: true, Weight: 9})
	f.Must(f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)))
	app, _, err := f.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, fixture.At(fixture.T0))
	f.Must(err)
	if !app.Bounds.Suspended || app.Bounds.Weight != 9 {
		t.Errorf("the app came again with bounds %+v, want those it had", *app.Bounds)
	}
}
