package store_test

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func chores() []poisonedBatch {
	watch := func(r *batchRig) error {
		_, _, err := r.WatchAlerts(r.Context(), &alert.LateFire{}, 10, r.now)
		return err
	}
	return []poisonedBatch{
		{
			name: "states: that of a job cannot be written", methods: []string{"RollUp"}, work: dispatcher.WorkStates,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				r.exec(`UPDATE jobs SET state = 'paused'`)
				r.refuse("UPDATE", "jobs", "ROW.id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.RollUp(r.Context(), 10)
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM jobs WHERE state <> 'paused' AND id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "alerts: a state cannot be read", methods: []string{"WatchAlerts"}, work: dispatcher.WorkAlerts,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				r.alerted()
				must(r.T, watch(r)) // creates the alert states of the jobs
				must(r.T, watch(r))
				r.exec(`UPDATE alert_states SET check_at = 1`)
				r.exec(`UPDATE alert_states SET track = '{' WHERE job_id = %d`, r.job("evil"))
			},
			call: watch,
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM alert_states WHERE check_at > 1 AND job_id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "alerts: those of an app cannot be read", methods: []string{"WatchAlerts"}, work: dispatcher.WorkAlerts,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				r.alerted()
				r.exec(`UPDATE alerts SET definition = '{' WHERE app_id = %d`, run.AppID("evil"))
				r.exec(`UPDATE apps SET alerts_swept_to = ''`)
			},
			call: func(r *batchRig) error {
				for range 3 {
					if err := watch(r); err != nil {
						return err
					}
				}
				return nil
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM apps WHERE alerts_swept_to IS NULL AND name = 'victim'`) == 1
			},
		},
		{
			name: "objectives: counts cannot be written", methods: []string{"RollUpObjectives"}, work: dispatcher.WorkObjectives,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", func(job *dispatcher.Job) {
					job.Objective = &dispatcher.Objective{Within: input.Duration(time.Minute), Of: "90%"}
				})
				r.refuse("UPDATE", "objectives", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.RollUpObjectives(r.Context(), 10, r.now.Add(10*time.Minute))
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM objectives WHERE checked_to > %d AND job_id = %d`, r.now.UnixMilli(), r.job("victim")) == 1
			},
		},
		{
			name: "statistics: missed fires are as many as can be", methods: []string{"RollUpStatistics"}, work: dispatcher.WorkStatistics,
			poison: func(r *batchRig) {
				r.jobs(nil)
				for i := range 2 {
					r.exec(`INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node, decided_at)
						SELECT %[1]d, %[1]d, j.id + %[2]d, j.id, CASE j.id WHEN %[3]d THEN 9223372036854775807 ELSE 1 END, 'skipped', '', 0, %[1]d
						FROM jobs AS j`, r.now.UnixMilli(), i, r.job("evil"))
				}
			},
			call: func(r *batchRig) error {
				for _, later := range []time.Duration{0, time.Hour, time.Hour} { // the first call starts with its own day
					if _, err := r.RollUpStatistics(r.Context(), r.now.Add(later)); err != nil {
						return err
					}
				}
				return nil
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM run_statistics WHERE app_id = %d`, run.AppID("victim")) == 1
			},
		},
		{
			name: "pauses: one of a job cannot end", methods: []string{"ExpirePauses"}, work: dispatcher.WorkPauses,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				until := r.now.Add(time.Minute)
				r.both(func(app string) {
					change := r.change()
					change.Until = &until
					_, err := r.PauseJob(r.Context(), app, "job", "", true, change)
					must(r.T, err)
				})
				r.exec(`UPDATE jobs SET target = '{' WHERE id = %d`, r.job("evil"))
				r.refuse("UPDATE", "jobs", "ROW.id = %d AND ROW.pause_until IS NULL", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.ExpirePauses(r.Context(), 10, r.now.Add(time.Hour))
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM jobs WHERE pause_until IS NULL AND id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "switches: the triggers of an app cannot follow", methods: []string{"FollowSwitches"}, work: dispatcher.WorkPauses,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				r.exec(`UPDATE apps SET switched_to = 0`)
				r.refuse("UPDATE", "apps", "ROW.name = 'evil'")
			},
			call: func(r *batchRig) error {
				_, _, err := r.FollowSwitches(r.Context(), 10)
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM apps WHERE switched_to IS NULL AND name = 'victim'`) == 1
			},
		},
		{
			name: "purge: an expired run cannot be removed", methods: []string{"Purge"}, work: dispatcher.WorkPurge,
			poison: func(r *batchRig) {
				r.jobs(nil)
				old := r.now.Add(-1000 * 24 * time.Hour).UnixMilli()
				r.exec(`INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, attempt, http_status)
					SELECT %[1]d, j.id, 2, j.id, 1, 1, %[1]d, 1, 200 FROM jobs AS j`, old)
				r.refuse("DELETE", "runs", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.Purge(r.Context(), batchNode, time.Time{})
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM runs WHERE job_id = %d`, r.job("victim")) == 0
			},
		},
		{
			name: "purge: a completed job cannot be deleted", methods: []string{"Purge"}, work: dispatcher.WorkPurge,
			poison: func(r *batchRig) {
				r.jobs(nil)
				r.exec(`UPDATE jobs SET state = 'complete', delete_after_completion = 1, completed_at = 1`)
				r.refuse("UPDATE", "jobs", "ROW.id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.Purge(r.Context(), batchNode, time.Time{})
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM jobs WHERE completed_at > 1 AND id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "zones: the next fire of a trigger cannot be written", methods: []string{"RescheduleForZones"}, work: dispatcher.WorkZones,
			quarantines: true,
			poison: func(r *batchRig) {
				r.firing("0 0 3 * * ?", func(job *dispatcher.Job) {
					tick := job.Triggers["tick"]
					tick.Timezone = "Europe/Berlin"
					job.Triggers["tick"] = tick
				})
				r.exec(`UPDATE trigger_clock SET next_fire_time = next_fire_time + 60000`)
				r.refuse("UPDATE", "trigger_clock", "ROW.app_id = %d AND ROW.state = 'waiting'", run.AppID("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.RescheduleForZones(r.Context(), 0, 10, r.now)
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM trigger_clock WHERE next_fire_time %% 3600000 = 0 AND app_id = %d`,
					run.AppID("victim")) == 1
			},
		},
		{
			name: "rollback: a run that is skipped cannot end", methods: []string{"SkipRolledBack"}, work: dispatcher.WorkLost,
			poison: func(r *batchRig) {
				r.requested(nil)
				_, err := r.DeclareRollback(r.Context(), "test", input.Change{Now: r.now.Add(time.Minute)})
				must(r.T, err)
				_, err = r.ResolveRollback(r.Context(), dispatcher.RollbackSkip, input.Change{Now: r.now.Add(time.Minute)})
				must(r.T, err)
				r.refuse("INSERT", "runs", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.SkipRolledBack(r.Context(), 0, 10, r.now.Add(2*time.Minute))
				return err
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Lost },
		},
		{
			name: "endpoints: one cannot be removed", methods: []string{"ExpireEndpoints"}, work: dispatcher.WorkEndpoints,
			poison: func(r *batchRig) {
				r.expiringEndpoints()
				r.refuse("DELETE", "endpoints", "ROW.group_id = %d AND ROW.id = 'a'", run.GroupID("evil", "workers"))
			},
			call: (*batchRig).expireEndpoints,
			goesOn: func(r *batchRig) bool { // the other endpoint of the group is processed
				return r.count(`SELECT count(*) FROM endpoints`) == 1
			},
		},
		{
			name: "endpoints: their group cannot be written", methods: []string{"ExpireEndpoints"}, work: dispatcher.WorkEndpoints,
			poison: func(r *batchRig) {
				r.expiringEndpoints()
				r.exec(`DELETE FROM endpoints WHERE id = 'b'`)
				r.refuse("UPDATE", "endpoint_groups", "ROW.id = %d", run.GroupID("evil", "workers"))
			},
			call: (*batchRig).expireEndpoints,
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM endpoints WHERE group_id = %d`, run.GroupID("victim", "workers")) == 0
			},
		},
		{
			name: "mend: the wait of a run cannot end", methods: []string{"MendLeaks"}, work: dispatcher.WorkRetry,
			poison: func(r *batchRig) {
				r.requested(nil)
				r.exec(`UPDATE live_runs SET state = 'retrying', waits_for = job_id, next_attempt_at = 1`)
				r.refuse("UPDATE", "live_runs", "ROW.job_id = %d AND ROW.waits_for = 0 AND ROW.node <> -3", r.job("evil"))
			},
			call: (*batchRig).mendLeaks,
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM live_runs WHERE waits_for = 0 AND job_id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "mend: a run cannot get a deadline", methods: []string{"MendLeaks"}, work: dispatcher.WorkRetry,
			poison: func(r *batchRig) {
				r.requested(nil)
				r.exec(`UPDATE live_runs SET state = 'waiting_callback'`)
				r.refuse("UPDATE", "live_runs", "ROW.job_id = %d AND ROW.next_attempt_at IS NOT NULL AND ROW.node <> -3", r.job("evil"))
			},
			call: (*batchRig).mendLeaks,
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM live_runs WHERE next_attempt_at > 0 AND job_id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "usage: bytes are as many as can be", methods: []string{"KeepBytes"}, work: dispatcher.WorkUsage,
			poison: func(r *batchRig) {
				r.jobs(nil)
				r.exec(`INSERT INTO app_bytes (app_id, day, bytes) VALUES (%d, %d, 9223372036854775807)`, run.AppID("evil"),
					r.now.Truncate(24*time.Hour).UnixMilli())
			},
			call: func(r *batchRig) error {
				_, err := r.KeepBytes(r.Context(), map[string]int64{"evil": 1, "victim": 1}, r.now)
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM app_bytes WHERE app_id = %d`, run.AppID("victim")) == 1
			},
		},
		{
			name: "usage: as many runs wait as can be", methods: []string{"WaitingRuns"}, work: dispatcher.WorkUsage,
			poison: func(r *batchRig) {
				r.jobs(nil)
				r.exec(`UPDATE app_usage SET waiting_runs = 9223372036854775807 WHERE app_id = %d`, run.AppID("evil"))
			},
			call: func(r *batchRig) error {
				one := dispatcher.GivenPlaces{Given: 1, Most: 10}
				_, err := r.WaitingRuns(r.Context(), map[string]dispatcher.GivenPlaces{"evil": one, "victim": one}, r.now)
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM app_usage WHERE counted_at > 0 AND app_id = %d`, run.AppID("victim")) == 1
			},
		},
	}
}

// expiringEndpoints registers two endpoints in a group of each app, for less than an hour.
func (r *batchRig) expiringEndpoints() {
	r.Helper()
	r.both(func(app string) {
		group := target.EndpointGroup{App: app, Name: "workers", EndpointGroupSpec: target.EndpointGroupSpec{Registration: &target.Registration{
			Networks: []string{"10.0.0.0/8"}, Ports: []int{8080}, ExpireAfter: input.Duration(time.Minute)}}}
		group.SetDefaults()
		_, _, err := r.PutGroup(r.Context(), group, r.change())
		must(r.T, err)
		for _, id := range []string{"a", "b"} {
			e := target.Endpoint{ID: id, StaticEndpoint: target.StaticEndpoint{URL: "http://10.0.0.1:8080", Weight: 1}}
			_, _, err := r.RegisterEndpoint(r.Context(), app, "workers", e, r.change())
			must(r.T, err)
		}
	})
}

// expireEndpoints expires endpoints an hour later.
func (r *batchRig) expireEndpoints() error {
	for n := 10; n == 10; {
		var err error
		if n, err = r.ExpireEndpoints(r.Context(), 10, r.now.Add(time.Hour)); err != nil {
			return err
		}
	}
	return nil
}

// mendLeaks mends leaks.
func (r *batchRig) mendLeaks() error {
	_, err := r.MendLeaks(r.Context(), 10, r.now)
	return err
}

// alerted declares an alert in each app.
func (r *batchRig) alerted() {
	r.Helper()
	r.both(func(app string) {
		a := alert.Alert{App: app, Name: "pager", Spec: alert.Spec{AlertConditionsOf: alert.AlertConditionsOf{
			NoSuccessFor: input.Duration(10 * time.Minute)}}}
		a.Destination.Webhook = &target.AlertWebhook{}
		a.Destination.Webhook.SetDefaults()
		a.Destination.Webhook.URL = "https://pager.example.com/"
		_, _, err := r.PutAlert(r.Context(), a, r.change())
		must(r.T, err)
	})
}
