package console_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// exactNumber is JSON with an integer that no float64 holds.
const exactNumber = `{"n":9007199254740993}`

// after returns the time some seconds after fixedAt.
func after(seconds int) *time.Time {
	at := fixedAt.Add(time.Duration(seconds) * time.Second)
	return &at
}

// longest returns a response of 64 KiB.
func longest() string { return hostile + strings.Repeat("x", 64<<10-len(hostile)) }

// watchedRun returns a run with two attempts. The second one has a response.
func watchedRun(id string, state run.State, body string) run.Run {
	r := run.Run{
		ID: id, App: "billing", Job: "invoices", Trigger: "nightly", Kind: run.KindSchedule, ScheduledAt: fixedAt, Revision: 3,
		State:   state,
		EventID: "event-" + id, Attempt: 2, ClaimedAt: after(30), StartedAt: after(31), EndedAt: after(33), Class: run.ClassHTTP5xx,
		Error:   hostile,
		Payload: json.RawMessage(exactNumber), FollowedBy: []run.Ref{{
			Run: "f1", App: "billing", Job: "report", On: run.OnFailure, State: run.Succeeded,
		}},
		Cause: &run.Cause{Run: "c1", On: "on_success", State: run.Succeeded},
		Attempts: []run.Attempt{
			{Attempt: 1, State: run.TimedOut, StartedAt: *after(1), EndedAt: *after(11), Class: run.ClassTimeout,
				Error:    "no response in 10s",
				Response: &run.Response{Body: "first"}},
			{Attempt: 2, State: run.Failed, StartedAt: *after(31), EndedAt: *after(33), HTTPStatus: 500, Class: run.ClassHTTP5xx,
				Error: hostile,
				Response: &run.Response{
					Endpoint: "worker-1", Headers: map[string]string{"Content-Type": hostile}, Body: body,
					BodyTruncated: true, State: json.RawMessage(exactNumber), Phases: run.Phases{Connect: input.Duration(time.Millisecond)},
				}},
		},
	}
	if state == run.WaitingCallback {
		r.EndedAt, r.Attempts, r.Class, r.Error = nil, r.Attempts[:1], "", ""
		r.Callback = &run.CallbackState{Deadline: later, HeartbeatAt: after(40), Progress: hostile,
			Percent: new(42), Endpoint: "worker-1"}
	}
	return r
}

// watchedJob returns a job with everything that a job can have, and n triggers.
func watchedJob(n int) dispatcher.Job {
	job := dispatcher.Job{
		App: "billing", Name: "invoices", JobSpec: dispatcher.JobSpec{Description: hostile, Enabled: true,
			Target:  target.Target{Webhook: &target.Webhook{Method: "POST", URL: "https://billing.example/run"}},
			Payload: json.RawMessage(exactNumber), Triggers: map[string]dispatcher.Trigger{},
			JobPolicies: dispatcher.JobPolicies{ConcurrencyPolicy: run.ConcurrencyAllow}},
		JobStatus: dispatcher.JobStatus{State: dispatcher.JobExecuting, Revision: 3, CreatedAt: fixedAt,
			UpdatedAt: fixedAt},
	}
	if n == 0 {
		return job
	}
	job.ConcurrencyPolicy, job.MaxConcurrency, job.CarryState, job.Labels = run.ConcurrencyQueue, 1, true,
		input.Labels{"team": "payments"}
	job.Objective = &dispatcher.Objective{Within: input.Duration(time.Second), Of: "99.9%"}
	job.OnFailure = &dispatcher.Follow{Jobs: []string{"report"}}
	job.Warnings = []input.Problem{{Path: "/triggers/nightly/expression", Code: input.WarnDST, Message: hostile}}
	for i := range n {
		name := "nightly"
		if i > 0 {
			name = fmt.Sprintf("other-%02d", i)
		}
		job.Triggers[name] = dispatcher.Trigger{
			TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 30 2 * * ?", Dialect: schedule.DialectQuartz,
				Timezone: "Europe/Berlin",
				Calendar: "holidays"},
				Enabled:       true,
				MisfirePolicy: dispatcher.FireOnce},
			TriggerStatus: dispatcher.TriggerStatus{State: dispatcher.TriggerPaused, Paused: true, NextFireTime: &later, PrevFireTime: &fixedAt,
				Pause: dispatcher.Pause{PausedBy: "ada", PausedAt: &fixedAt, PauseReason: hostile, PausedUntil: &later}},
		}
	}
	return job
}

// watchedStrip returns a strip with n cells, of all kinds in turn.
func watchedStrip(n int) view.Strip {
	strip := view.Strip{App: "billing", Job: "invoices", Trigger: "nightly", Now: *after(n * 60 / 2), Timezone: "Europe/Berlin"}
	for i := range n {
		kind := view.CellKinds[i%len(view.CellKinds)]
		cell := view.StripCell{ScheduledAt: *after(i * 60), What: kind, Why: hostile}
		if kind == view.CellRun {
			cell.Run, cell.State, cell.Late, cell.Took = "r1", run.Failed, input.Duration(2*time.Second),
				input.Duration(3*time.Second)
			cell.Class = run.ClassHTTP5xx
		}
		if kind == view.CellExcluded {
			cell.Until = after(i*60 + 30)
		}
		strip.Cells = append(strip.Cells, cell)
	}
	return strip
}

// newest is the beginning of a list, as in attention.
func newest[T any](n int, one func(name string) T) view.Newest[T] {
	return view.Newest[T]{Items: times(min(n, view.MaxAttention), one), More: n > view.MaxAttention}
}

// watchedAttention has n entries of each kind that asks for attention.
func watchedAttention(n int) view.Attention {
	pause := dispatcher.Pause{PausedBy: "ada", PausedAt: &fixedAt, PauseReason: hostile}
	a := view.Attention{
		At:     fixedAt,
		Failed: newest(n, func(name string) run.Run { return failedRun(name) }),
		Misfires: newest(n, func(name string) dispatcher.Misfire {
			return dispatcher.Misfire{App: "billing", Job: "invoices", Trigger: name, From: fixedAt, To: later, Count: 3,
				Decision: dispatcher.DecisionSkip, Reason: hostile}
		}),
		Blocked: newest(n, func(name string) view.Blockage {
			return view.Blockage{App: "billing", Job: name, Run: "r-" + name, Since: fixedAt, Ended: true, Skipped: 7, WaitsSince: &fixedAt}
		}),
		Overdue: newest(n, func(name string) view.OverdueTrigger {
			return view.OverdueTrigger{App: "billing", Job: "invoices", Trigger: name, NextFireTime: fixedAt, DueAt: fixedAt,
				Overdue: input.Duration(time.Minute)}
		}),
		Quarantined: newest(n, func(name string) view.QuarantinedTrigger {
			return view.QuarantinedTrigger{App: "billing", Job: "invoices", Trigger: name, Error: hostile}
		}),
		Paused: newest(n, func(name string) view.StandingPause {
			return view.StandingPause{App: "billing", Job: name, Pause: pause}
		}),
		Alerts: newest(n, func(name string) alert.State {
			return alert.State{App: "billing", Alert: "on-call", Job: name, Condition: target.AlertFailure, Firing: true,
				Since: fixedAt, Error: hostile, Run: "r1"}
		}),
		Objectives: newest(n, func(name string) dispatcher.ObjectiveStatus {
			return dispatcher.ObjectiveStatus{App: "billing", Job: name, Objective: dispatcher.Objective{Within: input.Duration(time.Second),
				Of: "99.9%"}, BudgetLeft: -12.5}
		}),
		Circuits: newest(n, func(name string) view.OpenCircuit {
			return view.OpenCircuit{App: "billing", Host: name + ".example", Jobs: 2, Job: "invoices", Runs: 1000, Since: fixedAt,
				Error: hostile, ProbeAt: fixedAt}
		}),
		Groups: newest(n, func(name string) view.SilentGroup {
			return view.SilentGroup{App: "billing", Group: name, LeftAt: &fixedAt, Jobs: 2, Job: "invoices"}
		}),
		Credentials: newest(n, func(name string) view.CredentialFailure {
			reason := view.CredentialRefused
			if name == "one-00" {
				reason = view.CredentialUnreadable
			}
			return view.CredentialFailure{App: "billing", Job: name, Reason: reason, Runs: 2, Run: "r1",
				Class: run.ClassHTTP4xx, HTTPStatus: 401, Error: hostile, At: fixedAt,
				Secrets: map[string]string{"/target/webhook/auth/bearer/token": "file:billing/token", "/target/webhook/signing/secret": "stored"}}
		}),
		Certificates: newest(n, func(name string) view.EndingCertificate {
			return view.EndingCertificate{App: "billing", Job: name, EndsAt: later}
		}),
		Retention: newest(n, func(name string) view.LateRetention {
			return view.LateRetention{App: name, Retention: input.Duration(48 * time.Hour), Oldest: fixedAt,
				Behind: input.Duration(75 * time.Hour)}
		}),
	}
	a.SetAside = newest(n, func(name string) dispatcher.SetAside {
		row := dispatcher.SetAside{Work: dispatcher.WorkAdopt, App: "billing", Job: "invoices", Run: name, Problem: hostile, Tries: 3,
			TryAt: later}
		switch name {
		case "one-01": // missed fires of a deleted job
			row.Work, row.App, row.Job, row.Run = dispatcher.WorkFollow, "", "", ""
		case "one-02":
			row.Work, row.Job, row.Run, row.Item = dispatcher.WorkStatistics, "", "", "app billing"
		}
		return row
	})
	if n > 0 {
		a.MoreNodes = 3
		a.Nodes = []view.NodeAttention{{Node: nodeOf("one"), Reasons: []dispatcher.NodeReason{dispatcher.NodeReasonDead,
			dispatcher.NodeReasonClock}}}
		a.Rollback = &dispatcher.Rollback{At: fixedAt, Reason: hostile}
	}
	return a
}

// failedRun is a run of a list.
func failedRun(name string) run.Run {
	return run.Run{
		ID: name, App: "billing", Job: "invoices", Trigger: "nightly", Kind: run.KindSchedule, ScheduledAt: fixedAt,
		State: run.Failed, Attempt: 1, EventID: "event-" + name, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
		StartedAt: after(1), EndedAt: after(3), Class: run.ClassHTTP5xx, Error: hostile,
	}
}

// summaryOf is a job of the list.
func summaryOf(name string) dispatcher.JobSummary {
	late := input.Duration(2 * time.Second)
	return dispatcher.JobSummary{
		App: "billing", Name: name, Description: hostile, Labels: input.Labels{"team": "payments"}, State: dispatcher.JobPaused,
		Enabled: true, Paused: true,
		Pause:    dispatcher.Pause{PausedBy: "ada", PausedAt: &fixedAt, PauseReason: hostile},
		Target:   target.TargetSummary{Kind: target.KindLambda, Name: "invoices"},
		Triggers: 1, NextFireTime: &later, Result: run.Failed,
		LatestRun: &dispatcher.RunSummary{ID: "r1", State: run.Failed, Class: run.ClassHTTP5xx, ScheduledAt: fixedAt,
			Lateness: &late},
	}
}

// watchedTimeline has n jobs with marks of all kinds.
func watchedTimeline(n int) view.Timeline {
	return view.Timeline{From: fixedAt, To: *after(28800), Now: *after(14400), Items: times(min(n, 15),
		func(name string) view.TimelineRow {
			return view.TimelineRow{Job: name, More: true, Marks: []view.TimelineMark{
				{What: view.MarkRun, ScheduledAt: fixedAt, Count: 1, Run: "r1", State: run.Failed, Class: run.ClassHTTP5xx,
					StartedAt: after(1), EndedAt: after(3600)},
				{What: view.MarkRun, ScheduledAt: *after(7200), Count: 1, Run: "r2", State: run.Succeeded},
				{What: view.MarkMisfire, ScheduledAt: *after(7260), Count: 3, Trigger: "nightly"},
				{What: view.MarkMisfire, ScheduledAt: *after(10000), Count: 1, Trigger: "nightly"},
				{What: view.MarkPlanned, ScheduledAt: *after(20000), Last: after(21000), Count: 200, AtLeast: true},
			}}
		})}
}

// watched are the responses of an API that has n objects of each kind.
func watched(n int) map[string]any {
	job, attained := watchedJob(n), 99.5
	counts := make([]int64, 288)
	if n > 0 {
		counts[12], counts[24] = 3, int64(40*n)
	}
	responses := map[string]any{
		"GET /v1/attention": watchedAttention(n),
		"GET /v1/upcoming": view.UpcomingFires{Step: input.Duration(view.UpcomingStep),
			From: fixedAt, Counts: counts, ComputedAt: &fixedAt},
		"GET /v1/jobs": items(times(n, summaryOf), ""),
		"GET /v1/apps": items(times(n, func(name string) access.App { return access.App{Name: name} }),
			""),
		"GET /v1/apps/billing/alert-states":  items(times(n, alertState), ""),
		"GET /v1/runs":                       items(times(n, failedRun), ""),
		"GET /v1/apps/billing/runs":          items(times(n, failedRun), ""),
		"GET /v1/audit":                      items(times(n, changeOf), ""),
		"GET /v1/runs/r1":                    watchedRun("r1", run.Failed, hostile),
		"GET /v1/runs/r2":                    watchedRun("r2", run.WaitingCallback, ""),
		"GET /v1/runs/r1/request":            requestOf("r1"),
		"GET /v1/runs/r2/request":            requestOf("r2"),
		"GET /v1/runs/r3":                    watchedRun("r3", run.Failed, longest()),
		"GET /v1/runs/r3/request":            requestOf("r3"),
		"GET /v1/apps/billing/timeline":      watchedTimeline(n),
		"GET /v1/apps/billing/jobs/invoices": job,
		"GET /v1/apps/billing/jobs/invoices/statistics": view.JobStatistics{From: fixedAt, To: later,
			Waits: view.Percentiles{Count: n, P50: input.Duration(time.Second), Max: input.Duration(time.Minute)},
			Hours: hoursOf(min(n, 1) * 14 * 24)},
		"GET /v1/apps/billing/jobs/invoices/slots": items(times(n, func(name string) dispatcher.Slot {
			return dispatcher.Slot{Run: name,
				Since: fixedAt}
		}), ""),
		"GET /v1/apps/billing/jobs/invoices/state": run.CarriedState{State: json.RawMessage(exactNumber), Revision: 7,
			UpdatedAt: &fixedAt, SetBy: hostile},
		"GET /v1/apps/billing/jobs/invoices/objective": dispatcher.ObjectiveStatus{App: "billing", Job: "invoices",
			Objective: dispatcher.Objective{Of: "99.9%"}, Attained: &attained, BurnRates: map[string]float64{"1h": 14.4}},
		"GET /v1/apps/billing/jobs/invoices/triggers/nightly/explain": explanationOf(n),
		"POST /v1/schedules/preview":                                  previewOf(n),
	}
	for name := range job.Triggers {
		strip := watchedStrip(min(n*9, 80))
		strip.Trigger = name
		responses["GET /v1/apps/billing/jobs/invoices/triggers/"+name+"/strip"] = strip
	}
	return responses
}

// hoursOf are the latest n hours: some with failed, skipped or missed runs.
func hoursOf(n int) []view.HourStatistics {
	hours := []view.HourStatistics{}
	for i := range n {
		one := view.HourStatistics{At: time.Now().UTC().Truncate(time.Hour).Add(time.Duration(i+1-n) * time.Hour),
			Runs: map[run.State]int64{run.Succeeded: 60}}
		switch i % 7 {
		case 1:
			one.Runs[run.TimedOut] = 3
		case 2:
			one.Runs[run.Skipped] = 4
		case 3:
			one.Misfires = 5
		}
		hours = append(hours, one)
	}
	return hours
}

// requestOf is the request of a run, with its masked parts.
func requestOf(run string) target.ShownRequest {
	return target.ShownRequest{
		Run: run, Attempt: 2, Revision: 4, RunRevision: 3, Target: target.KindWebhook, Method: "POST",
		URL:     "https://billing.example/run?q=<script>",
		Headers: []target.ShownHeader{{Name: "Authorization", Value: target.Mask, Masked: true}}, Body: exactNumber,
		Masked: []string{"auth bearer token"},
	}
}

// changeOf is an entry of the audit log.
func changeOf(name string) access.AuditEntry {
	return access.AuditEntry{At: fixedAt, ID: name, Actor: hostile, Action: "put", App: "billing", Subject: "job invoices", Revision: 3}
}

// explanationOf is the response of explain, as JSON.
func explanationOf(n int) map[string]any {
	found := map[string]any{
		"app": "billing", "job": "invoices", "trigger": "nightly", "at": fixedAt, "verdict": "none", "reason": hostile, "steps": []any{},
	}
	if n > 0 {
		found["verdict"], found["revision"], found["due_at"], found["next_at"] = "run", 3, fixedAt, later
		found["run"] = failedRun("r1")
		found["steps"] = times(n, func(string) map[string]any { return map[string]any{"at": fixedAt, "what": hostile} })
	}
	return found
}

// previewOf is a schedule with n fires, half an hour apart, in a night in which the clock goes forward.
func previewOf(n int) view.Preview {
	p := view.Preview{
		Schedule: dispatcher.Schedule{Expression: "0 30 2 * * ?", Dialect: schedule.DialectQuartz, Timezone: "Europe/Berlin"},
		From:     fixedAt.Add(-24 * time.Hour), FireTimes: []time.Time{},
	}
	for i := range n {
		p.FireTimes = append(p.FireTimes, fixedAt.Add(time.Duration(i)*24*time.Hour))
	}
	return p
}
