package store_test

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// poisonedBatch is a batch that fails on a row of the app evil.
type poisonedBatch struct {
	name    string
	methods []string // of storetest.Batches
	work    dispatcher.Work
	poison  func(*batchRig)
	call    func(*batchRig) error // one round of the batch
	goesOn  func(*batchRig) bool  // reports whether the row of victim was processed
	// quarantines: the row is a trigger, which is quarantined. ofNoApp: the row belongs to no app.
	quarantines, ofNoApp bool
}

func poisonedBatches() []poisonedBatch {
	var all []poisonedBatch
	for _, some := range [][]poisonedBatch{
		adoptBatches(), claimBatches(), attemptBatches(), endBatches(), fireBatches(), chores(), purgeBatches(),
	} {
		all = append(all, some...)
	}
	return all
}

// adopt finds runs and adopts them.
func (r *batchRig) adopt(retries bool) error {
	query := dispatcher.AdoptQuery{Node: batchNode, Token: batchToken + 1, Limit: 10, Now: r.now, Retries: retries}
	found, err := r.Adoptable(r.Context(), query)
	if err == nil {
		_, err = r.Adopt(r.Context(), query, found)
	}
	return err
}

// holds reports whether the node holds the run of victim.
func (r *batchRig) holds() bool { return r.state("victim") == run.Claimed }

func adoptBatches() []poisonedBatch {
	return []poisonedBatch{
		{
			name: "adopt: the number of the attempt is the largest", methods: []string{"Adopt"}, work: dispatcher.WorkAdopt,
			poison: func(r *batchRig) {
				r.requested(nil)
				r.spoil("attempt = " + r.most())
			},
			call: func(r *batchRig) error { return r.adopt(false) }, goesOn: (*batchRig).holds,
		},
		{
			name: "retry: the number of the attempt is the largest", methods: []string{"Adopt"}, work: dispatcher.WorkRetry,
			poison: func(r *batchRig) {
				r.retrying(r.now.Add(time.Hour))
				r.spoil("attempt = " + r.most())
			},
			call: func(r *batchRig) error { return r.adopt(true) }, goesOn: (*batchRig).holds,
		},
		{
			name: "unfold: a fire of a dead node's claim cannot be written", methods: []string{"Adoptable"}, work: dispatcher.WorkUnfold,
			poison: func(r *batchRig) {
				r.claimed()
				r.refuse("INSERT", "live_runs", "ROW.job_id = %d", r.job("evil"))
				r.exec(`UPDATE nodes SET state = 'dead' WHERE id = %d`, batchNode)
				must(r.T, r.Register(r.Context(), dispatcher.Node{ID: batchNode + 1, Name: "n", Version: "v"}, r.now))
			},
			call: func(r *batchRig) error {
				_, err := r.Adoptable(r.Context(), dispatcher.AdoptQuery{Node: batchNode + 1, Token: 1, Limit: 10, Now: r.now})
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM live_runs WHERE job_id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "unfold: a fire of an old claim cannot be written", methods: []string{"UnfoldClaims"}, work: dispatcher.WorkUnfold,
			poison: func(r *batchRig) {
				r.claimed()
				r.refuse("INSERT", "live_runs", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.UnfoldClaims(r.Context(), batchNode, time.Minute, r.now.Add(time.Hour))
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM live_runs WHERE job_id = %d`, r.job("victim")) == 1
			},
		},
	}
}

// claimed claims a fire of each app, each in its own claim.
func (r *batchRig) claimed() {
	r.Helper()
	r.firing("rate(1m)", nil)
	for i, advance := range r.advances(false) {
		held, err := r.Claim(r.Context(), dispatcher.ClaimBatch{Node: batchNode, Token: batchToken + run.Token(i), Lead: time.Hour,
			Now: r.now, Advances: []dispatcher.Advance{advance}})
		must(r.T, err)
		r.keep(held)
	}
}

// advances returns the compare-and-swaps of the triggers of both apps.
func (r *batchRig) advances(live bool) (all []dispatcher.Advance) {
	r.Helper()
	due, err := r.Due(r.Context(), dispatcher.DueQuery{Until: r.now.Add(time.Hour), Now: r.now, Limit: 10})
	must(r.T, err)
	if len(due) != 2 {
		r.Fatalf("%d triggers are due, want 2", len(due))
	}
	for _, d := range due {
		job := r.job("evil")
		if d.AppID == run.AppID("victim") {
			job = r.job("victim")
		}
		all = append(all, dispatcher.Advance{TriggerID: d.ID, JobID: job, Revision: d.Revision, CalendarRevision: d.CalendarRevision,
			Prev: d.PrevFireTime, Next: d.NextFireTime, Then: d.NextFireTime.Add(time.Minute), Live: live})
	}
	return all
}

func attemptBatches() []poisonedBatch {
	held := func(r *batchRig) (runs []run.HeldRun) {
		all, err := r.Held(r.Context(), batchNode, 0)
		must(r.T, err)
		return all
	}
	forbid := func(job *dispatcher.Job) { job.ConcurrencyPolicy = run.ConcurrencyForbid }
	return []poisonedBatch{
		{
			name: "begin: the run cannot be written", methods: []string{"Begin"}, work: dispatcher.WorkBegin,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.refuse("UPDATE", "live_runs", "ROW.job_id = %d AND ROW.state = 'running'", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.Begin(r.Context(), held(r))
				return err
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Running },
		},
		{
			name: "release: the number of the attempt is the smallest", methods: []string{"Release"}, work: dispatcher.WorkBegin,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.spoil("attempt = -" + r.most() + " - 1")
			},
			call:   func(r *batchRig) error { return r.Release(r.Context(), held(r)) },
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Queued },
		},
		{
			name: "slots: one cannot be written", methods: []string{"Acquire"}, work: dispatcher.WorkSlots,
			poison: func(r *batchRig) {
				r.adopted(forbid)
				r.refuse("INSERT", "slots", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.Acquire(r.Context(), held(r))
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM slots WHERE job_id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "slots of endpoints: one cannot be written", methods: []string{"AcquireEndpoints"}, work: dispatcher.WorkSlots,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.exec(`UPDATE jobs SET endpoint_concurrency = 'forbid'`)
				r.refuse("INSERT", "slots", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				var requests []target.EndpointRequest
				for _, run := range held(r) {
					requests = append(requests, target.EndpointRequest{HeldRun: run, Endpoint: "e"})
				}
				_, err := r.AcquireEndpoints(r.Context(), requests)
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM slots WHERE job_id = %d`, r.job("victim")) == 1
			},
		},
		{
			name: "slots: one cannot be released", methods: []string{"ReleaseSlots", "GrantWaiting"}, work: dispatcher.WorkSlots,
			poison: func(r *batchRig) {
				for _, one := range r.adopted(forbid) {
					_, err := r.Acquire(r.Context(), []run.HeldRun{one})
					must(r.T, err)
					must(r.T, r.Record(r.Context(), []dispatcher.Record{r.record(one, run.Succeeded)}))
				}
				r.exec(`UPDATE nodes SET state = 'dead' WHERE id = %d`, batchNode)
				r.refuse("DELETE", "slots", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error { return r.GrantWaiting(r.Context()) },
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM slots WHERE job_id = %d`, r.job("victim")) == 0
			},
		},
		{
			name: "record: the failures are as many as can be", methods: []string{"Record"}, work: dispatcher.WorkRecord,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.spoil("failures = " + r.most())
			},
			call: func(r *batchRig) error {
				var records []dispatcher.Record
				for _, one := range held(r) {
					record := r.record(one, run.Failed)
					record.Next = &dispatcher.NextAttempt{At: r.now, Until: r.now.Add(time.Hour), CountsAsFailure: true}
					records = append(records, record)
				}
				return r.Record(r.Context(), records)
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Retrying },
		},
		{
			name: "record: a run cannot enter the history", methods: []string{"Record"}, work: dispatcher.WorkRecord,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.refuse("INSERT", "runs", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				var records []dispatcher.Record
				for _, one := range held(r) {
					records = append(records, r.record(one, run.Succeeded))
				}
				return r.Record(r.Context(), records)
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Succeeded },
		},
	}
}

func endBatches() []poisonedBatch {
	refuseEnd := func(r *batchRig) { r.refuse("INSERT", "runs", "ROW.job_id = %d", r.job("evil")) }
	return []poisonedBatch{
		{
			name: "give up: a run cannot enter the history", methods: []string{"GiveUp"}, work: dispatcher.WorkGiveUp,
			poison: func(r *batchRig) {
				r.retrying(r.now.Add(time.Second))
				refuseEnd(r)
			},
			call: func(r *batchRig) error {
				_, err := r.GiveUp(r.Context(), r.now.Add(time.Hour))
				return err
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Failed },
		},
		{
			name: "fail lost runs: one cannot enter the history", methods: []string{"FailLostRuns"}, work: dispatcher.WorkLost,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.exec(`UPDATE live_runs SET state = 'running'`)
				r.exec(`UPDATE nodes SET state = 'dead', heartbeat_at = 0 WHERE id = %d`, batchNode)
				refuseEnd(r)
			},
			call: func(r *batchRig) error {
				_, err := r.FailLostRuns(r.Context(), r.now)
				return err
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Lost },
		},
		{
			name: "lose begun runs: one cannot enter the history", methods: []string{"LoseRuns"}, work: dispatcher.WorkLost,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.exec(`UPDATE live_runs SET state = 'running'`)
				refuseEnd(r)
			},
			call: func(r *batchRig) error {
				begun, err := r.Begun(r.Context(), batchNode)
				must(r.T, err)
				_, err = r.LoseRuns(r.Context(), begun, r.now)
				return err
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Lost },
		},
		{
			name: "broadcast: the endpoints of its shards cannot be read", methods: []string{"EndBroadcasts"}, work: dispatcher.WorkBroadcast,
			poison: func(r *batchRig) {
				r.adopted(nil)
				r.exec(`UPDATE live_runs SET state = 'waiting_shards', node = 0, token = 0`)
				r.exec(`INSERT INTO broadcasts (scheduled_at, trigger_id, kind, endpoints) SELECT scheduled_at, trigger_id, kind,
					CASE job_id WHEN %d THEN '["' ELSE '[]' END FROM live_runs`, r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.EndBroadcasts(r.Context(), nil, r.now)
				return err
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Succeeded },
		},
		{
			name: "follow: a follower cannot be queued", methods: []string{"FollowEnds"}, work: dispatcher.WorkFollow,
			poison: func(r *batchRig) {
				for _, one := range r.adopted(nil) {
					must(r.T, r.Record(r.Context(), []dispatcher.Record{r.record(one, run.Failed)}))
					r.exec(`INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt, http_status, state, class,
						error) VALUES (%d, %d, %d, 2, %[4]d, %[4]d, 1, 0, 'failed', 'other', '')`,
						r.now.UnixMilli(), one.TriggerID, one.ScheduledAt.UnixMilli(), one.JobID)
				}
				r.refuse("DELETE", "pending_ends", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.FollowEnds(r.Context(), dispatcher.FollowQuery{Limit: 10, Now: r.now})
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM pending_ends WHERE job_id = %d`, r.job("victim")) == 0
			},
		},
		{
			name: "hosts: the wait of a run cannot end", methods: []string{"DueHosts"}, work: dispatcher.WorkHost,
			poison: func(r *batchRig) {
				r.requested(nil)
				r.exec(`INSERT INTO host_waits (id, app_id, job_id, host, pause, probe_at) SELECT j.id, j.app_id, j.id, 'h', 1000, 0 FROM jobs AS j`)
				r.exec(`UPDATE live_runs SET state = 'retrying', waits_for = job_id, next_attempt_at = 1`)
				r.refuse("UPDATE", "live_runs", "ROW.job_id = %d AND ROW.waits_for = 0", r.job("evil"))
			},
			call: func(r *batchRig) error {
				_, err := r.DueHosts(r.Context(), dispatcher.HostQuery{Now: r.now, Overdue: r.now})
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM live_runs WHERE waits_for = 0 AND job_id = %d`, r.job("victim")) == 1
			},
		},
	}
}

func fireBatches() []poisonedBatch {
	moved := func(r *batchRig) bool {
		return r.count(`SELECT count(*) FROM trigger_clock WHERE prev_fire_time IS NOT NULL AND app_id = %d`, run.AppID("victim")) == 1
	}
	settled := func(r *batchRig) error {
		due, err := r.Due(r.Context(), dispatcher.DueQuery{Until: r.now.Add(time.Hour), Now: r.now, Limit: 10})
		if err != nil || len(due) == 0 {
			return err
		}
		batch := dispatcher.SettleBatch{Node: batchNode, Token: batchToken, Now: r.now.Add(time.Hour)}
		for _, d := range due {
			job := r.job("evil")
			if d.AppID == run.AppID("victim") {
				job = r.job("victim")
			}
			batch.Settlements = append(batch.Settlements, dispatcher.Settlement{Advance: dispatcher.Advance{TriggerID: d.ID, JobID: job,
				Revision: d.Revision, CalendarRevision: d.CalendarRevision, Prev: d.PrevFireTime, Next: d.NextFireTime,
				Then: d.NextFireTime.Add(24 * time.Hour)}, To: d.NextFireTime, Count: 1, Decision: dispatcher.DecisionSkip, Reason: "test"})
		}
		_, err = r.Settle(r.Context(), batch)
		return err
	}
	return []poisonedBatch{
		{
			name: "claim: a run cannot be written", methods: []string{"Claim"}, work: dispatcher.WorkFire, quarantines: true,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				r.refuse("INSERT", "live_runs", "ROW.job_id = %d", r.job("evil"))
			},
			call: func(r *batchRig) error {
				due, err := r.Due(r.Context(), dispatcher.DueQuery{Until: r.now.Add(time.Minute), Now: r.now, Limit: 10})
				if err != nil || len(due) < 2 {
					return err
				}
				_, err = r.Claim(r.Context(), dispatcher.ClaimBatch{Node: batchNode, Token: batchToken, Lead: time.Hour, Now: r.now,
					Advances: r.advances(true)})
				return err
			},
			goesOn: moved,
		},
		{
			name: "settle: a misfire cannot be written", methods: []string{"Settle"}, work: dispatcher.WorkFire, quarantines: true,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				r.refuse("INSERT", "misfires", "ROW.job_id = %d", r.job("evil"))
			},
			call: settled, goesOn: moved,
		},
		{
			name: "fixed delay: its fires are as many as can be", methods: []string{"ScheduleNext"}, work: dispatcher.WorkFire, quarantines: true,
			poison: func(r *batchRig) {
				r.firing("delay(1m)", nil)
				r.exec(`UPDATE trigger_clock SET next_fire_time = NULL, due_at = NULL, prev_fire_time = 1, ended_at = %d`, r.now.UnixMilli())
				r.exec(`UPDATE triggers SET fired = %s WHERE job_id = %d`, r.most(), r.job("evil"))
			},
			call: func(r *batchRig) error {
				ended, err := r.EndedDelays(r.Context(), nil, 10)
				var next []dispatcher.DelayedFire
				for _, one := range ended {
					next = append(next, dispatcher.DelayedFire{TriggerID: one.DueTrigger.ID, Revision: one.DueTrigger.Revision,
						CalendarRevision: one.CalendarRevision, Prev: one.PrevFireTime, Anchor: one.EndedAt, Next: r.now.Add(time.Minute)})
				}
				if err == nil {
					err = r.ScheduleNext(r.Context(), next)
				}
				return err
			},
			goesOn: func(r *batchRig) bool {
				return r.count(`SELECT count(*) FROM trigger_clock WHERE next_fire_time IS NOT NULL AND app_id = %d`, run.AppID("victim")) == 1
			},
		},
	}
}
