package definitions

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// attributeTests require that the store keeps each attribute of each definition: one without a column fails by name.
func attributeTests() tests {
	return tests{
		"each attribute of a job is kept":      testAttributesOfJobs,
		"each attribute of a trigger is kept":  testAttributesOfTriggers,
		"each attribute of an app is kept":     testAttributesOfApps,
		"each attribute of a calendar is kept": testAttributesOfCalendars,
		"each attribute of an alert is kept":   testAttributesOfAlerts,
		"each attribute of a group is kept":    testAttributesOfGroups,
		"each attribute of a token is kept":    testAttributesOfTokens,
	}
}

// samples are values for attributes of these types; others get a value by their kind.
var samples = map[reflect.Type]any{
	reflect.TypeFor[run.Delivery]():          dispatcher.AtMostOnce,
	reflect.TypeFor[run.ConcurrencyPolicy](): run.ConcurrencyForbid,
	reflect.TypeFor[input.Labels]():          input.Labels{"team": "night"},
	reflect.TypeFor[[]string]():              []string{"other"},
	reflect.TypeFor[run.Retry](): run.Retry{MaxAttempts: 7, Base: input.Duration(time.Second), Cap: input.Duration(time.Minute),
		MaxAge: input.Duration(time.Hour)},
	reflect.TypeFor[json.RawMessage]():    json.RawMessage(`{"n": 7}`),
	reflect.TypeFor[*dispatcher.Follow](): &dispatcher.Follow{Jobs: []string{"other"}, Payload: "result"},
	reflect.TypeFor[target.Target](): target.Target{Webhook: &target.Webhook{URL: "https://other.example.com", Method: "PUT",
		Timeout: target.DefaultTimeout}},
	reflect.TypeFor[*dispatcher.Objective]():            &dispatcher.Objective{Within: input.Duration(time.Minute), Of: "99%"},
	reflect.TypeFor[*time.Time]():                       new(fixture.T0.Add(90 * time.Second)),
	reflect.TypeFor[dispatcher.MisfirePolicy]():         dispatcher.FireAll,
	reflect.TypeFor[input.Duration]():                   input.Duration(time.Hour),
	reflect.TypeFor[*dispatcher.JobDefaults]():          &dispatcher.JobDefaults{Timezone: "Europe/Berlin"},
	reflect.TypeFor[*target.Bounds]():                   bounds(),
	reflect.TypeFor[[]schedule.CalendarRule]():          []schedule.CalendarRule{{Dates: []string{"2026-12-25"}}},
	reflect.TypeFor[*alert.Failures]():                  &alert.Failures{After: 7},
	reflect.TypeFor[[]alert.MuteWindow]():               []alert.MuteWindow{{From: new(fixture.T0), To: new(fixture.T0.Add(time.Hour))}},
	reflect.TypeFor[target.GroupKind]():                 target.GroupXXLJob,
	reflect.TypeFor[target.Strategy]():                  target.Strategy("last"),
	reflect.TypeFor[*target.Signing]():                  &target.Signing{Secrets: map[string]target.Secret{"k": *secret()}},
	reflect.TypeFor[*target.Auth]():                     &target.Auth{Bearer: &target.BearerAuth{Token: *secret()}},
	reflect.TypeFor[*target.Secret]():                   secret(),
	reflect.TypeFor[*target.TLS]():                      &target.TLS{MinVersion: "1.3"},
	reflect.TypeFor[target.Probe]():                     target.Probe{IdlePath: "/other"},
	reflect.TypeFor[map[string]target.StaticEndpoint](): map[string]target.StaticEndpoint{"b": {URL: "https://b.example.com"}},
	reflect.TypeFor[*target.Registration](): &target.Registration{Networks: []string{"10.1.0.0/16"}, Ports: []int{8081},
		ExpireAfter: input.Duration(time.Hour)},
	reflect.TypeFor[map[string]target.DNSMembers](): map[string]target.DNSMembers{"other": {Hostname: "other.internal", Port: 8080}},
	reflect.TypeFor[*target.HealthCheck]():          healthCheck(),
	reflect.TypeFor[[]access.Scope]():               []access.Scope{access.ScopeRun},
	reflect.TypeFor[schedule.Gap]():                 schedule.GapNext,
	reflect.TypeFor[schedule.Overlap]():             schedule.OverlapFirst,
	reflect.TypeFor[schedule.OnExcluded]():          schedule.OnExcludedNextDay,
}

func secret() *target.Secret { return &target.Secret{Reference: "env:SECRET_SHOP_S"} }

func healthCheck() *target.HealthCheck {
	var c target.HealthCheck
	c.SetDefaults()
	c.Path = "/other"
	return &c
}

func bounds() *target.Bounds {
	b := target.Bounds{Weight: 7}.WithDefaults("shop")
	return &b
}

// eachAttribute changes the attributes of a definition one by one, to a value by name or type, and compares the stored
// value.
func eachAttribute[S any](t *testing.T, spec S, named map[string]any, keep func(S) S) {
	t.Helper()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[S]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || f.Name == "Triggers" {
			continue
		}
		changed := spec
		value := reflect.ValueOf(&changed).Elem().FieldByIndex(f.Index)
		if sample, ok := named[name]; ok {
			value.Set(reflect.ValueOf(sample))
		} else if !change(value) {
			t.Errorf("attribute %s has the type %s; give samples a value of it", name, f.Type)
			continue
		}
		want := asJSON(t, value.Interface())
		stored := keep(changed)
		if kept := asJSON(t, reflect.ValueOf(stored).FieldByIndex(f.Index).Interface()); !holds(kept, want) {
			t.Errorf("attribute %s of %T is not kept; give it a column: put %v, stored %v", name, spec, want, kept)
		}
	}
}

// change gives an attribute another value.
func change(v reflect.Value) bool {
	if sample, ok := samples[v.Type()]; ok {
		v.Set(reflect.ValueOf(sample))
		return true
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("other")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 7)
	default:
		return false
	}
	return true
}

func testAttributesOfJobs(t *testing.T, f *wing) {
	f.PutEvery("other", time.Minute)
	base := fixture.Job("kept", nil).JobSpec
	named := map[string]any{"acknowledge": []string{dispatcher.WarningCodes[0]}, "runbook_url": "https://wiki.example.com/other"}
	eachAttribute(t, base, named, func(spec dispatcher.JobSpec) dispatcher.JobSpec {
		job := fixture.Job("kept", nil)
		job.JobSpec = spec
		if job.CarryState {
			job.ConcurrencyPolicy = run.ConcurrencyForbid
		}
		return f.Put(job, fixture.T0).JobSpec
	})
}

func testAttributesOfTriggers(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("other"), fixture.T0)
	base := fixture.Every(time.Minute, fixture.T0).TriggerSpec
	base.Expression, base.Timezone, base.StartAt = "every 1 day", "UTC", new(fixture.T0.Add(time.Minute))
	named := map[string]any{"expression": "every 2 days", "dialect": schedule.DialectCalendarInterval, "timezone": "Europe/Berlin",
		"end_at": new(fixture.T0.AddDate(1, 0, 0)), "misfire_after": input.Duration(time.Hour), "catch_up_window": input.Duration(2 * time.Hour)}
	eachAttribute(t, base, named, func(spec dispatcher.TriggerSpec) dispatcher.TriggerSpec {
		if spec.OnExcluded != "" {
			spec.Calendar = "other"
		}
		job := f.Put(fixture.Job("kept", map[string]dispatcher.Trigger{"tick": {TriggerSpec: spec}}), fixture.T0)
		return job.Triggers["tick"].TriggerSpec
	})
}

func testAttributesOfApps(t *testing.T, f *wing) {
	retention := map[string]any{"retention": input.Duration(48 * time.Hour)}
	eachAttribute(t, access.AppSpec{Enabled: true}, retention, func(spec access.AppSpec) access.AppSpec {
		f.Must(f.PutApp(f.Context(), access.App{Name: "shop", AppSpec: spec}, fixture.Operator(fixture.T0)))
		stored, err := f.App(f.Context(), "shop")
		f.Must(err)
		if spec.Bounds == nil {
			stored.Bounds = nil
		}
		return stored.AppSpec
	})
}

func testAttributesOfCalendars(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("other"), fixture.T0)
	eachAttribute(t, fixture.Calendar("kept").CalendarSpec, map[string]any{"timezone": "Europe/Berlin"},
		func(spec dispatcher.CalendarSpec) dispatcher.CalendarSpec {
			f.DeclareCalendar(dispatcher.Calendar{App: "shop", Name: "kept", CalendarSpec: spec}, fixture.T0)
			stored, err := f.Calendar(f.Context(), "shop", "kept")
			f.Must(err)
			return stored.CalendarSpec
		})
}

func testAttributesOfAlerts(t *testing.T, f *wing) {
	other := fixture.Pager("kept").Destination
	webhook := *other.Webhook
	webhook.URL = "https://other.example.com/"
	other.Webhook = &webhook
	eachAttribute(t, fixture.Pager("kept").Spec, map[string]any{"destination": other}, func(spec alert.Spec) alert.Spec {
		return f.DeclareAlert(alert.Alert{App: "shop", Name: "kept", Spec: spec}, fixture.T0).Spec
	})
}

func testAttributesOfGroups(t *testing.T, f *wing) {
	path := map[string]any{"path": "/other"}
	eachAttribute(t, fixture.Workers().EndpointGroupSpec, path, func(spec target.EndpointGroupSpec) target.EndpointGroupSpec {
		name := "kept"
		if spec.Kind == target.GroupXXLJob || spec.AppName != "" || spec.AccessToken != nil {
			// A group of executors has no other settings of the workers, and no other group can become one.
			token := cmp.Or(spec.AccessToken, secret())
			name, spec = "executors", target.EndpointGroupSpec{Kind: target.GroupXXLJob, Strategy: "first",
				XXLJobSettings: target.XXLJobSettings{AppName: cmp.Or(spec.AppName, "executors"), AccessToken: token}}
		}
		return f.DeclareGroup(target.EndpointGroup{App: "shop", Name: name, EndpointGroupSpec: spec}, fixture.T0).EndpointGroupSpec
	})
}

func testAttributesOfTokens(t *testing.T, f *wing) {
	base := access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}}
	later := map[string]any{"expires_at": new(fixture.T0.AddDate(1, 0, 0))}
	eachAttribute(t, base, later, func(spec access.TokenSpec) access.TokenSpec {
		token := access.APIToken{ID: "kept", Name: "kept", TokenSpec: spec}
		_, token.Hash = access.NewToken()
		f.Must(f.PutToken(f.Context(), token, fixture.Operator(fixture.T0)))
		stored, err := f.Token(f.Context(), "kept")
		f.Must(err)
		return stored.TokenSpec
	})
}

// holds reports whether kept contains the JSON of want, possibly with defaults.
func holds(kept, want any) bool {
	parts, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(kept, want)
	}
	has, _ := kept.(map[string]any)
	for key, part := range parts {
		if !holds(has[key], part) {
			return false
		}
	}
	return true
}

func asJSON(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	var plain any
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
