package reads

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/test/clientcert"
)

// causes returns the other causes for attention in some apps at a time, as text.
func (f *wing) causes(now time.Time, apps ...string) string {
	f.Helper()
	a, err := f.Attention(f.Context(), apps, now)
	f.Must(err)
	var all []string
	for _, g := range a.Groups.Items {
		left := "never"
		if g.LeftAt != nil {
			left = g.LeftAt.Sub(fixture.T0).String()
		}
		all = append(all, fmt.Sprintf("group %s/%s draining %d left %s jobs %d %s", g.App, g.Group, g.Draining, left, g.Jobs, g.Job))
	}
	for _, c := range a.Credentials.Items {
		at := "waits"
		if !c.At.IsZero() {
			at = c.At.Sub(fixture.T0).String()
		}
		all = append(all, fmt.Sprintf("secret %s %s %d %d %s %v", c.Job, c.Reason, c.HTTPStatus, c.Runs, at, c.Secrets))
	}
	for _, c := range a.Certificates.Items {
		all = append(all, fmt.Sprintf("certificate %s%s", c.Job, c.Group))
	}
	for _, r := range a.Retention.Items {
		all = append(all, fmt.Sprintf("retention %s %s behind %s", r.App, r.Retention, r.Behind))
	}
	return strings.Join(all, "\n")
}

// census returns the census.
func (f *wing) census() dispatcher.Census {
	f.Helper()
	c, err := f.Census(f.Context(), fixture.T0, 100)
	f.Must(err)
	return c
}

// callGroup puts a job that calls the group of workers.
func (f *wing) callGroup(name string, enabled bool) {
	f.Helper()
	j := fixture.Job(name, nil)
	j.Enabled = enabled
	j.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Method: "POST", Timeout: target.DefaultTimeout}}
	f.Put(j, fixture.T0)
}

func testSilentGroups(t *testing.T, f *wing) {
	group := fixture.Workers()
	group.Endpoints, group.DNS = nil, nil
	f.DeclareGroup(group, fixture.T0)
	f.Expect("a group that nothing calls", f.causes(fixture.T0), "")
	f.callGroup("off", false)
	f.Expect("a group that a disabled job calls", f.causes(fixture.T0), "")
	f.callGroup("night", true)
	f.callGroup("day", true)
	const never = "group shop/workers draining 0 left never jobs 2 day"
	f.Expect("a group that nobody joined", f.causes(fixture.T0, "shop"), never)
	f.DeclareApp("other")
	f.Expect("as another app sees it", f.causes(fixture.T0, "other"), "")
	f.AddEndpoint(fixture.Endpoint("w1", "http://10.0.0.1:8080"), fixture.T0)
	f.Expect("a group with an endpoint", f.causes(fixture.T0), "")
	f.Must(f.DrainEndpoint(t.Context(), "shop", "workers", "w1", true, fixture.At(fixture.T0)))
	f.Expect("a group that is drained", f.causes(fixture.T0), "group shop/workers draining 1 left never jobs 2 day")
	f.Must(f.DrainEndpoint(t.Context(), "shop", "workers", "w1", false, fixture.At(fixture.T0)))
	f.Expect("a group whose endpoint has just expired", f.causes(fixture.T0.Add(time.Hour)), never)
	f.Must(f.ExpireEndpoints(t.Context(), 10, fixture.T0.Add(time.Hour)))
	f.Expect("a group whose endpoints expired", f.causes(fixture.T0.Add(2*time.Hour)), "group shop/workers draining 0 left 1h0m0s jobs 2 day")
	f.AddEndpoint(fixture.Endpoint("w1", "http://10.0.0.1:8080"), fixture.T0.Add(2*time.Hour))
	f.Must(f.DeregisterEndpoint(t.Context(), "shop", "workers", "w1", fixture.At(fixture.T0.Add(3*time.Hour))))
	f.Expect("a group whose endpoint left", f.causes(fixture.T0.Add(4*time.Hour)), "group shop/workers draining 0 left 3h0m0s jobs 2 day")
	f.Expect("counted", f.census().SilentGroups, 1)
	group.DNS = map[string]target.DNSMembers{"all": {Hostname: "workers.internal", Port: 8080}}
	f.DeclareGroup(group, fixture.T0)
	f.Expect("a group with names", f.causes(fixture.T0), "")
	f.Expect("counted with names", f.census().SilentGroups, 0)
}

func testCredentialFailures(t *testing.T, f *wing) {
	j := fixture.Job("login", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	j.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "env:SECRET_SHOP_LOGIN"}}}
	f.Put(j, fixture.T0)
	f.PutEvery("other", time.Minute)
	fail := func(name string, class run.Class, status int) run.HeldRun {
		held := f.FireOf(name)
		o := fixture.Ended(run.Failed, held.ScheduledAt)
		o.Class, o.HTTPStatus, o.Error = class, status, "why"
		f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(held, o)}))
		return held
	}
	fail("other", run.ClassHTTP4xx, 404)
	fail("other", run.ClassHTTP5xx, 503)
	f.Expect("failures that have nothing to do with secrets", f.causes(fixture.Minutes(10)), "")
	fail("login", run.ClassHTTP4xx, 401)
	last := fail("login", run.ClassHTTP4xx, 401)
	over := last.ScheduledAt.Add(time.Second).Sub(fixture.T0)
	secrets := "map[/target/webhook/auth/bearer/token:env:SECRET_SHOP_LOGIN]"
	f.Expect("a target that refuses a secret", f.causes(fixture.Minutes(10), "shop"),
		fmt.Sprintf("secret login refused 401 2 %s %s", over, secrets))
	f.DeclareApp("quiet")
	f.Expect("as another app sees it", f.causes(fixture.Minutes(10), "quiet"), "")
	f.Expect("a day later", f.causes(fixture.Minutes(24*60+10)), "")
	for _, class := range []run.Class{run.ClassSecret, run.ClassOAuth2, run.ClassCredentials} {
		fail("login", class, 0)
		want := fmt.Sprintf("secret login %s 0 ", view.CredentialReasonOf(class, 0))
		f.Expect("class "+string(class), strings.HasPrefix(f.causes(fixture.Minutes(10)), want), true)
	}
	sends := fixture.Workers()
	sends.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "env:SECRET_SHOP_WORKERS"}}}
	f.DeclareGroup(sends, fixture.T0)
	calls := fixture.Job("calls", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	calls.Target = target.Target{Group: &target.GroupTarget{Name: sends.Name, Method: "POST", Timeout: target.DefaultTimeout}}
	f.Put(calls, fixture.T0)
	fail("calls", run.ClassHTTP4xx, 401)
	f.Expect("the secret of a group", strings.Contains(f.causes(fixture.Minutes(10)),
		"map[group workers/auth/bearer/token:env:SECRET_SHOP_WORKERS]"), true)
	success := f.FireOf("calls")
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(success, fixture.Outcome(success.ScheduledAt))}))
	f.Expect("the secret of a group once its job has succeeded", strings.Contains(f.causes(fixture.Minutes(10)), "secret calls"), false)
	waiting := f.FireOf("other")
	o := fixture.Ended(run.Failed, waiting.ScheduledAt)
	o.Class, o.HTTPStatus = run.ClassHTTP4xx, 403
	f.Again(waiting, o, fixture.FailedUntil(fixture.Minutes(20)))
	f.Expect("a run that is to be attempted again", strings.HasPrefix(f.causes(fixture.Minutes(10)), "secret other refused 403 1 waits"), true)
}

func testEndingCertificates(t *testing.T, f *wing) {
	certificate, _ := clientcert.New(t)
	tls := &target.TLS{ClientCertificate: certificate, ClientKey: &target.Secret{Reference: "env:SECRET_SHOP_KEY"}}
	end := tls.CertificateEnd()
	f.Expect("no end", f.census().CertificateEnd.IsZero(), true)
	presents := fixture.Job("presents", nil)
	presents.Target.Webhook.TLS = tls
	f.Put(presents, fixture.T0)
	group := fixture.Workers()
	group.TLS = tls
	f.DeclareGroup(group, fixture.T0)
	f.Expect("counted", f.census().CertificateEnd, *end)
	f.Expect("of a job", f.causes(end.Add(-time.Hour)), "certificate presents")
	f.Expect("long before", f.causes(end.Add(-15*24*time.Hour)), "")
	f.callGroup("calls", true)
	f.Expect("of a group", f.causes(end.Add(time.Hour), "shop"), "certificate workers\ncertificate presents")
	f.DeclareApp("other")
	f.Expect("as another app sees it", f.causes(*end, "other"), "")
	presents.Enabled = false
	f.Put(presents, fixture.T0)
	f.Expect("of a job that is off", f.causes(*end), "certificate workers")
	group.TLS = nil
	f.DeclareGroup(group, fixture.T0)
	f.Expect("without one", f.causes(*end), "")
	f.Expect("counted without one", f.census().CertificateEnd.IsZero(), true)
}

func testForgottenPauses(t *testing.T, f *wing) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	old, recent, later := now.Add(-8*24*time.Hour), now.Add(-6*24*time.Hour), now.Add(time.Hour)
	for name, tt := range map[string]struct {
		at   time.Time
		want int
	}{"a recent pause": {recent, 0}, "an old pause": {old, 1}} {
		for _, trigger := range []string{"", "tick"} {
			f.PutEvery("paused", time.Minute)
			f.Must(f.PauseJob(t.Context(), "shop", "paused", trigger, true, fixture.At(tt.at)))
			f.Expect(name+" "+trigger, f.census().Forgotten, tt.want)
			f.Must(f.PauseJob(t.Context(), "shop", "paused", trigger, false, fixture.At(now)))
			f.Must(f.PauseJob(t.Context(), "shop", "paused", trigger, true, input.Change{Now: tt.at, Until: &later}))
			f.Expect(name+" with an end "+trigger, f.census().Forgotten, 0)
			f.Must(f.PauseJob(t.Context(), "shop", "paused", trigger, false, fixture.At(now)))
		}
	}
	f.Must(f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{}, fixture.At(old)))
	f.Expect("an old pause of an app", f.census().Forgotten, 1)
}

func testLateRetention(t *testing.T, f *wing) {
	f.Expect("an empty ledger", f.causes(fixture.T0), "")
	f.PutBrief()
	f.PutEvery("j", time.Minute)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(f.FireOf("j"), fixture.Ended(run.Succeeded, fixture.Minutes(1)))}))
	day := 24 * time.Hour
	// The app shop keeps its history for 30 days; days are dropped after the next has expired. brief is not swept here.
	f.Expect("history that is kept", strings.Contains(f.causes(fixture.T0.Add(20*day), "shop"), "retention"), false)
	got := f.causes(fixture.T0.Add(50 * day))
	f.Expect("history that nobody removed", strings.Contains(got, "retention  720h0m0s behind "), true)
	f.Expect("that of an app", strings.Contains(got, "retention brief 48h0m0s behind "), true)
	f.Expect("as the app sees it", strings.HasPrefix(f.causes(fixture.T0.Add(50*day), "brief"), "retention brief"), true)
	for range 20 {
		purged, err := f.Purge(t.Context(), fixture.NodeA, fixture.T0.Add(50*day))
		f.Must(err)
		if !purged.More {
			break
		}
	}
	f.Expect("once it is removed", f.causes(fixture.T0.Add(50*day)), "")
}
