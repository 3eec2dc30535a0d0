package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/test/clientcert"
)

// causes returns what else asks for attention in some apps at a time, as words.
func (f *fixture) causes(now time.Time, apps ...string) string {
	f.Helper()
	a, err := f.Attention(f.Context(), apps, now)
	f.must(err)
	var all []string
	for _, g := range a.Groups.Items {
		left := "never"
		if g.LeftAt != nil {
			left = g.LeftAt.Sub(t0).String()
		}
		all = append(all, fmt.Sprintf("group %s/%s draining %d left %s jobs %d %s", g.App, g.Group, g.Draining, left, g.Jobs, g.Job))
	}
	for _, c := range a.Credentials.Items {
		at := "waits"
		if !c.At.IsZero() {
			at = c.At.Sub(t0).String()
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

// census counts what there is.
func (f *fixture) census() dispatcher.Census {
	f.Helper()
	c, err := f.Census(f.Context(), t0, 100)
	f.must(err)
	return c
}

// callGroup puts a job that calls the group of workers.
func (f *fixture) callGroup(name string, enabled bool) {
	f.Helper()
	j := job(name, nil)
	j.Enabled = enabled
	j.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Method: "POST", Timeout: target.DefaultTimeout}}
	f.put(j, t0)
}

func testSilentGroups(t *testing.T, f *fixture) {
	group := workers()
	group.Endpoints, group.DNS = nil, nil
	f.putGroup(group, t0)
	f.expect("a group that nothing calls", f.causes(t0), "")
	f.callGroup("off", false)
	f.expect("a group that a disabled job calls", f.causes(t0), "")
	f.callGroup("night", true)
	f.callGroup("day", true)
	const never = "group shop/workers draining 0 left never jobs 2 day"
	f.expect("a group that nobody joined", f.causes(t0, "shop"), never)
	f.putApp("other")
	f.expect("as another app sees it", f.causes(t0, "other"), "")
	f.registerEndpoint(endpoint("w1", "http://10.0.0.1:8080"), t0)
	f.expect("a group with an endpoint", f.causes(t0), "")
	f.must(f.DrainEndpoint(t.Context(), "shop", "workers", "w1", true, at(t0)))
	f.expect("a group that is drained", f.causes(t0), "group shop/workers draining 1 left never jobs 2 day")
	f.must(f.DrainEndpoint(t.Context(), "shop", "workers", "w1", false, at(t0)))
	f.expect("a group whose endpoint has just expired", f.causes(t0.Add(time.Hour)), never)
	f.must(f.ExpireEndpoints(t.Context(), 10, t0.Add(time.Hour)))
	f.expect("a group whose endpoints expired", f.causes(t0.Add(2*time.Hour)), "group shop/workers draining 0 left 1h0m0s jobs 2 day")
	f.registerEndpoint(endpoint("w1", "http://10.0.0.1:8080"), t0.Add(2*time.Hour))
	f.must(f.DeregisterEndpoint(t.Context(), "shop", "workers", "w1", at(t0.Add(3*time.Hour))))
	f.expect("a group whose endpoint left", f.causes(t0.Add(4*time.Hour)), "group shop/workers draining 0 left 3h0m0s jobs 2 day")
	f.expect("counted", f.census().SilentGroups, 1)
	group.DNS = map[string]target.DNSMembers{"all": {Name: "workers.internal", Port: 8080}}
	f.putGroup(group, t0)
	f.expect("a group with names", f.causes(t0), "")
	f.expect("counted with names", f.census().SilentGroups, 0)
}

func testCredentialFailures(t *testing.T, f *fixture) {
	j := job("login", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
	j.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "env:SECRET_SHOP_LOGIN"}}}
	f.put(j, t0)
	f.putEvery("other", time.Minute)
	fail := func(name string, class run.Class, status int) run.HeldRun {
		held := f.fireOf(name)
		o := ended(run.Failed, held.ScheduledAt)
		o.Class, o.HTTPStatus, o.Error = class, status, "why"
		f.must(f.Record(t.Context(), []dispatcher.Record{record(held, o)}))
		return held
	}
	fail("other", run.ClassHTTP4xx, 404)
	fail("other", run.ClassHTTP5xx, 503)
	f.expect("failures that have nothing to do with secrets", f.causes(minutes(10)), "")
	fail("login", run.ClassHTTP4xx, 401)
	last := fail("login", run.ClassHTTP4xx, 401)
	over := last.ScheduledAt.Add(time.Second).Sub(t0)
	secrets := "map[/target/webhook/auth/bearer/token:env:SECRET_SHOP_LOGIN]"
	f.expect("a target that refuses a secret", f.causes(minutes(10), "shop"),
		fmt.Sprintf("secret login refused 401 2 %s %s", over, secrets))
	f.putApp("quiet")
	f.expect("as another app sees it", f.causes(minutes(10), "quiet"), "")
	f.expect("a day later", f.causes(minutes(24*60+10)), "")
	for _, class := range []run.Class{run.ClassSecret, run.ClassOAuth2, run.ClassCredentials} {
		fail("login", class, 0)
		want := fmt.Sprintf("secret login %s 0 ", view.CredentialReasonOf(class, 0))
		f.expect("class "+string(class), strings.HasPrefix(f.causes(minutes(10)), want), true)
	}
	sends := workers()
	sends.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "env:SECRET_SHOP_WORKERS"}}}
	f.putGroup(sends, t0)
	calls := job("calls", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
	calls.Target = target.Target{Group: &target.GroupTarget{Name: sends.Name, Method: "POST", Timeout: target.DefaultTimeout}}
	f.put(calls, t0)
	fail("calls", run.ClassHTTP4xx, 401)
	f.expect("the secret of a group", strings.Contains(f.causes(minutes(10)),
		"map[group workers/auth/bearer/token:env:SECRET_SHOP_WORKERS]"), true)
	waiting := f.fireOf("other")
	o := ended(run.Failed, waiting.ScheduledAt)
	o.Class, o.HTTPStatus = run.ClassHTTP4xx, 403
	f.again(waiting, o, failedUntil(minutes(20)))
	f.expect("a run that is to be attempted again", strings.HasPrefix(f.causes(minutes(10)), "secret other refused 403 1 waits"), true)
}

func testEndingCertificates(t *testing.T, f *fixture) {
	certificate, _ := clientcert.New(t)
	tls := &target.TLS{ClientCertificate: certificate, ClientKey: &target.Secret{Reference: "env:SECRET_SHOP_KEY"}}
	end := tls.CertificateEnd()
	f.expect("no end", f.census().CertificateEnd.IsZero(), true)
	presents := job("presents", nil)
	presents.Target.Webhook.TLS = tls
	f.put(presents, t0)
	group := workers()
	group.TLS = tls
	f.putGroup(group, t0)
	f.expect("counted", f.census().CertificateEnd, *end)
	f.expect("of a job", f.causes(end.Add(-time.Hour)), "certificate presents")
	f.expect("long before", f.causes(end.Add(-15*24*time.Hour)), "")
	f.callGroup("calls", true)
	f.expect("of a group", f.causes(end.Add(time.Hour), "shop"), "certificate workers\ncertificate presents")
	f.putApp("other")
	f.expect("as another app sees it", f.causes(*end, "other"), "")
	presents.Enabled = false
	f.put(presents, t0)
	f.expect("of a job that is off", f.causes(*end), "certificate workers")
	group.TLS = nil
	f.putGroup(group, t0)
	f.expect("without one", f.causes(*end), "")
	f.expect("counted without one", f.census().CertificateEnd.IsZero(), true)
}

func testForgottenPauses(t *testing.T, f *fixture) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	old, recent, later := now.Add(-8*24*time.Hour), now.Add(-6*24*time.Hour), now.Add(time.Hour)
	for name, tt := range map[string]struct {
		at   time.Time
		want int
	}{"a recent pause": {recent, 0}, "an old pause": {old, 1}} {
		for _, trigger := range []string{"", "tick"} {
			f.putEvery("paused", time.Minute)
			f.must(f.PauseJob(t.Context(), "shop", "paused", trigger, true, at(tt.at)))
			f.expect(name+" "+trigger, f.census().Forgotten, tt.want)
			f.must(f.PauseJob(t.Context(), "shop", "paused", trigger, false, at(now)))
			f.must(f.PauseJob(t.Context(), "shop", "paused", trigger, true, input.Change{Now: tt.at, Until: &later}))
			f.expect(name+" with an end "+trigger, f.census().Forgotten, 0)
			f.must(f.PauseJob(t.Context(), "shop", "paused", trigger, false, at(now)))
		}
	}
	f.must(f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{}, at(old)))
	f.expect("an old pause of an app", f.census().Forgotten, 1)
}

func testLateRetention(t *testing.T, f *fixture) {
	f.expect("an empty ledger", f.causes(t0), "")
	f.putBrief()
	f.putEvery("j", time.Minute)
	f.must(f.Record(t.Context(), []dispatcher.Record{record(f.fireOf("j"), ended(run.Succeeded, minutes(1)))}))
	day := 24 * time.Hour
	// The app shop keeps its history for 30 days; days go when they and the next are over, and brief is swept as nobody does.
	f.expect("history that is kept", strings.Contains(f.causes(t0.Add(20*day), "shop"), "retention"), false)
	got := f.causes(t0.Add(50 * day))
	f.expect("history that nobody removed", strings.Contains(got, "retention  720h0m0s behind "), true)
	f.expect("that of an app", strings.Contains(got, "retention brief 48h0m0s behind "), true)
	f.expect("as the app sees it", strings.HasPrefix(f.causes(t0.Add(50*day), "brief"), "retention brief"), true)
	for range 20 {
		purged, err := f.Purge(t.Context(), nodeA, t0.Add(50*day))
		f.must(err)
		if !purged.More {
			break
		}
	}
	f.expect("once it is removed", f.causes(t0.Add(50*day)), "")
}
