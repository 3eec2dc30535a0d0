package console_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// hostile is a text that must be shown as it is.
const hostile = `<script>alert("1")</script> & ` + "\u202e9007199254740993"

var (
	fixedAt = time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
	later   = time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC)
)

// items is the JSON of a list.
func items[T any](all []T, next string) map[string]any {
	if all == nil {
		all = []T{}
	}
	list := map[string]any{"items": all}
	if next != "" {
		list["next"] = next
	}
	return list
}

// times returns n objects.
func times[T any](n int, one func(name string) T) []T {
	all := []T{}
	for i := range n {
		all = append(all, one(fmt.Sprintf("one-%02d", i)))
	}
	return all
}

// operated are the responses of an API that has n objects of each kind.
func operated(n int) map[string]any {
	next := ""
	if n > 1 {
		next = "cursor-of-the-last"
	}
	bounds := target.Bounds{Suspended: true, SuspendedReason: hostile,
		Suspension: target.Suspension{SuspendedBy: "root", SuspendedAt: &fixedAt}}.WithDefaults("billing")
	app := access.App{Name: "billing", AppSpec: access.AppSpec{Description: hostile, Enabled: true, Retention: input.DefaultRetention,
		Bounds: &bounds},
		AppStatus: access.AppStatus{Usage: &target.Usage{Jobs: 12, Triggers: 30, BytesKept: 4096}, Revision: 3, CreatedAt: fixedAt,
			UpdatedAt: fixedAt,
			Pauses: times(n, func(name string) dispatcher.AppPause {
				return dispatcher.AppPause{ID: name, App: "billing", PausedBy: "ada", PausedAt: fixedAt,
					AppPauseRequest: dispatcher.AppPauseRequest{Labels: input.Labels{"team": "payments"}, Reason: hostile,
						Until: &later}}
			})}}
	if n == 0 {
		app.Bounds = &target.Bounds{}
	}
	group := func(name string) target.EndpointGroup {
		return target.EndpointGroup{App: "billing", Name: name,
			EndpointGroupSpec: target.EndpointGroupSpec{Description: hostile, Strategy: target.RoundRobin,
				HealthCheck: &target.HealthCheck{Path: "/healthz", Interval: input.Duration(10 * time.Second)},
				Endpoints:   map[string]target.StaticEndpoint{"a": {URL: "https://a.example"}}}}
	}
	calendar := func(name string) dispatcher.Calendar {
		return dispatcher.Calendar{App: "billing", Name: name,
			CalendarSpec: dispatcher.CalendarSpec{Description: hostile, Timezone: "Europe/Berlin",
				Bases: []string{"national"},
				Rules: []schedule.CalendarRule{{Dates: []string{"12-25"}}, {Weekdays: []string{"SAT-SUN"}, From: "22:00", To: "06:00",
					Only: true}}}}
	}
	attained := 99.5
	alert := func(name string) alert.Alert {
		return alert.Alert{
			App: "billing", Name: name, Spec: alert.Spec{Description: hostile, Jobs: []string{"invoices"},
				Labels: input.Labels{"team": "payments"},
				AlertConditionsOf: alert.AlertConditionsOf{Failure: &alert.Failures{After: 2}, Missed: true,
					LateAfter: input.Duration(time.Minute), Objective: true},
				Destination: target.AlertDestination{SNS: &target.AlertTopic{TopicARN: "arn:aws:sns:eu-central-1:123456789012:on-call"}}},
			Status: alert.Status{Firing: 1,
				Warnings: []input.Problem{{Path: "/jobs/0", Code: input.CodeAlertJobUnknown, Message: hostile}}},
		}
	}
	backfill := func(name string) repeat.Backfill {
		return repeat.Backfill{ID: name, App: "billing", Job: "invoices", State: repeat.BackfillRunning, Error: hostile,
			BackfillSpec: repeat.BackfillSpec{Trigger: "daily", From: fixedAt, To: later, Concurrency: 2,
				Order:    repeat.BackfillOldestFirst,
				Existing: repeat.ExistingSkip, Reason: hostile},
			BackfillProgress: repeat.BackfillProgress{Total: 10, Queued: 6, Skipped: 1, Running: 2, Succeeded: 3, Failed: 1,
				ReachedAt: &fixedAt},
			CreatedBy: "ada", CreatedAt: fixedAt}
	}
	of := "/v1/apps/billing"
	r := run.Key{TriggerID: 7, ScheduledAt: fixedAt, Kind: run.KindSchedule}.String()
	responses := map[string]any{
		"GET /v1/apps": items(times(n, func(name string) access.App { a := app; a.Name = name; return a }), next),
		"GET " + of:    app,
		"GET /v1/objectives": items(times(n, func(name string) dispatcher.ObjectiveStatus {
			return dispatcher.ObjectiveStatus{App: "billing", Job: name,
				Objective:       dispatcher.Objective{Within: input.Duration(time.Second), Of: "99.9%"},
				ObjectiveCounts: dispatcher.ObjectiveCounts{Good: 995, Late: 3, Missed: 2}, Attained: &attained, BudgetLeft: -400}
		}), next),
		"GET " + of + "/groups":       items(times(n, group), next),
		"GET " + of + "/groups/fleet": group("fleet"),
		"GET " + of + "/groups/fleet/endpoints": items(times(n, func(name string) target.Endpoint {
			return target.Endpoint{ID: name, StaticEndpoint: target.StaticEndpoint{URL: "https://a.example", Backup: true},
				Source: target.EndpointStatic, Draining: name == "one-01", RegisteredAt: fixedAt}
		}), next),
		"GET " + of + "/groups/fleet/status": target.GroupStatus{Node: "n1",
			DNS: map[string]target.DNSStatus{"members": {Hostname: "workers-1.example", Type: "a", Members: 2,
				ResolvedAt: &fixedAt, Error: hostile}},
			Endpoints: []target.EndpointStatus{{ID: "one-00", State: target.EndpointDown, Reason: hostile, Until: &later}}},
		"GET " + of + "/calendars":          items(times(n, calendar), next),
		"GET " + of + "/calendars/holidays": calendar("holidays"),
		"GET " + of + "/jobs":               items([]dispatcher.Job{}, next),
		"GET " + of + "/misfires": items(times(n, func(name string) dispatcher.Misfire {
			return dispatcher.Misfire{App: "billing", Job: name, Trigger: "daily", From: fixedAt, To: later, Count: 3,
				Decision: dispatcher.DecisionFireOnce,
				Reason:   hostile, Run: r, DecidedAt: later}
		}), next),
		"GET " + of + "/backfills":               items(times(n, backfill), next),
		"GET " + of + "/backfills/b1":            backfill("b1"),
		"GET " + of + "/alerts":                  items(times(n, alert), next),
		"GET " + of + "/alerts/on-call":          alert("on-call"),
		"GET " + of + "/alert-states":            items(times(n, alertState), next),
		"GET " + of + "/alert-events":            items(times(n, alertEvent), next),
		"GET " + of + "/dead-letters":            items(times(n, func(name string) run.Run { return deadRun(r, name) }), next),
		"GET " + of + "/bulk":                    items(times(n, bulkOf), next),
		"GET " + of + "/bulk/k1":                 bulkOf("k1"),
		"POST " + of + "/bulk":                   repeat.BulkCount{Total: 12},
		"GET /v1/statistics":                     view.Statistics{CountedTo: fixedAt, Days: times(n, dayOf)},
		"GET /v1/jobs":                           items(times(n, summaryOf), next),
		"GET /v1/nodes":                          items(times(n, nodeOf), ""),
		"GET /v1/audit":                          items(times(n, auditOf), next),
		"GET /v1/tokens":                         items(times(n, tokenOf), next),
		"GET /v1/tokens/deploy":                  tokenOf("deploy"),
		"POST " + of + "/jobs/invoices/backfill": repeat.BackfillCount{Total: 31, Skipped: 4, First: &fixedAt, Last: &later},
	}
	if n > 0 {
		responses["GET /v1/rollback"] = dispatcher.Rollback{At: fixedAt, Reason: hostile, Effect: &dispatcher.RollbackEffect{
			LatestRunAt: &fixedAt,
			Apps:        []dispatcher.RollbackApp{{App: "billing", Triggers: 40, Fires: 12345, Runs: 27}, {App: "shop", Fires: 5}}, More: true}}
	}
	return responses
}

func alertState(name string) alert.State {
	return alert.State{App: "billing", Alert: "on-call", Job: name, Condition: target.AlertFailure, Firing: true,
		Since: fixedAt, Count: 4,
		Class: run.ClassHTTP5xx, Error: hostile, Acknowledged: &alert.AcknowledgedAlert{By: "ada", At: fixedAt,
			Reason: hostile},
		Notification: &alert.Delivery{Run: "r", Transition: target.AlertFiring, At: fixedAt,
			State: run.Failed, Class: run.ClassHTTP4xx, Error: hostile}}
}

func alertEvent(name string) alert.Event {
	return alert.Event{At: fixedAt, Alert: "on-call", Job: name, Condition: target.AlertMissed,
		Transition: target.AlertResolved, EventRun: alert.EventRun{Error: hostile}, Kept: alert.KeptMuted, By: "ada", Reason: hostile}
}

func deadRun(id, name string) run.Run {
	return run.Run{ID: id, App: "billing", Job: name, Trigger: "daily", Kind: run.KindSchedule, ScheduledAt: fixedAt,
		State: run.Failed, Class: run.ClassHTTP5xx, Error: hostile, Attempt: 3}
}

func nodeOf(name string) dispatcher.Node {
	id := run.NodeID(0x1f)
	if i := strings.LastIndex(name, "-"); i >= 0 && name[i+1:] != "00" { // times numbers them
		n, _ := strconv.Atoi(name[i+1:])
		id += run.NodeID(n)
	}
	return dispatcher.Node{ID: id, Name: name, Version: "1.2.3", State: dispatcher.NodeActive,
		Labels: input.Labels{"zone": "a"}, StartedAt: fixedAt,
		NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatAt: fixedAt}, Share: 0.5, NodeReport: dispatcher.NodeReport{InFlight: 3, Fires: 90,
			Lag:         input.Duration(2 * time.Second),
			ClockOffset: input.Duration(-time.Second)}}
}

func auditOf(name string) access.AuditEntry {
	return access.AuditEntry{At: fixedAt, ID: access.AuditID(fixedAt, 5), Actor: "ada", TokenID: "t1", Address: "192.0.2.1",
		RequestID: "q1",
		Action:    "put", App: "billing", Subject: "job " + name + hostile, Revision: 4, Refused: "forbidden",
		Before: json.RawMessage(`{"payload":9007199254740993}`), After: json.RawMessage(`{"description":"` + `<script>` + `"}`)}
}

func bulkOf(id string) repeat.BulkAction {
	return repeat.BulkAction{ID: id, App: "billing", State: repeat.BulkRunning,
		StepRetries: dispatcher.StepRetries{Waits: hostile}, Problem: hostile, Done: 5,
		Skipped: 2,
		BulkSpec: repeat.BulkSpec{Action: repeat.BulkPauseJobs, Reason: hostile,
			Filter: repeat.BulkFilter{Name: hostile, Labels: input.Labels{"team": "payments"}, From: fixedAt}},
		BulkCount: repeat.BulkCount{Total: 10, More: true}, CreatedBy: "ada", CreatedAt: fixedAt}
}

// dayOf is a day of the statistics, before those that the chart shows.
func dayOf(string) view.DayStatistics {
	return view.DayStatistics{Day: "2026-03-29", Runs: map[run.State]int64{run.Succeeded: 90,
		run.Failed:  7,
		run.Skipped: 3}, Attempts: 110, Misfires: 2, Started: 97, LateMean: input.Duration(12 * time.Millisecond),
		LateMost: input.Duration(3 * time.Second)}
}

func tokenOf(name string) access.APIToken {
	return access.APIToken{ID: name, Name: name, TokenSpec: access.TokenSpec{Description: hostile, Scopes: []access.Scope{access.ScopeRead,
		access.ScopeRun},
		Apps: []string{"billing"}, ExpiresAt: &fixedAt}, TokenStatus: access.TokenStatus{CreatedAt: fixedAt, LastUsedAt: &fixedAt, Revision: 2}}
}
