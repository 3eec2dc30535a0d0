package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is a deliberate bug: edits of the product's source, and the faults under which the checker
// must notice it.
type mutant struct {
	name, what    string
	edits         []edit
	kills, faults string
	args          []string // further arguments of the nodes
}

// edit replaces a text that occurs exactly once in a file.
type edit struct{ file, old, new string }

// mutants each break one guarantee of the engine.
var mutants = []mutant{
	{
		name: "no_fence", what: "an outcome is stored without a check of its token", kills: "stop K8,stop K9", faults: "none",
		edits: []edit{
			{"dispatcher/store/db/scan.go", "return OfBatch(f) + ` AND r.token = b.token AND r.attempt = b.attempt`", "return OfBatch(f)"},
			{"dispatcher/store/dispatch/record.go", "(b.token IN (SELECT token FROM f)) = b.yes",
				"(b.token IN (SELECT token FROM f) OR b.yes) = b.yes"},
		},
	},
	{
		name: "careless_unfold", what: "what is recorded of a claim is not looked for when the claim is unfolded", kills: "K6,K8,K9",
		faults: "none",
		edits: []edit{{"dispatcher/store/dispatch/unfold.go", "r.trigger_id = f.trigger_id AND r.kind = 1` + db.Within",
			"r.trigger_id = f.trigger_id AND r.kind = 9` + db.Within"}},
	},
	{
		name: "split_claim", what: "the trigger is advanced in one statement and the claim inserted in another", kills: "K3", faults: "none",
		edits: []edit{
			{"dispatcher/store/dispatch/store.go", "	all.Claim = db.Writing(won + fires)\n",
				"	rows := f.Rows(3, 5, claimExtra, db.ClaimColumns...)\n	all.Claim = db.Writing(rows+` `+advance+` AND $2::bigint <> 0`,\n" +
					"		rows+db.Chosen(`SELECT `+claimedRow+`, b.live FROM b JOIN trigger_clock AS t ON t.id = b.id" +
					" AND t.prev_fire_time = b.next AND $4::bigint >= 0`)+`, g AS (`+insertClaim(f)+`)`+fires)\n"},
			{"dispatcher/store/db/postgres_statements.go", "	if len(hot.Parts) > 1 {\n",
				"	for i := 0; len(hot.Parts) > 1; i++ {\n		if affected, err = p.query(ctx, hot.Parts[i], args, scan); err != nil ||\n" +
					"			i == len(hot.Parts)-1 {\n			return affected, err\n		}\n	}\n	if len(hot.Parts) > 1 {\n"},
		},
	},
	{
		name: "no_lease", what: "a node sends without a check of its lease", kills: "stop K5,stop K4", faults: "none",
		args:  []string{"--claim-lead=200ms"}, // so that claimed runs wait for their time while the node freezes
		edits: []edit{{"dispatcher/engine/plan/fleet.go", "	return f.holdsLease(time.Now())\n", "	return true\n"}},
	},
	{
		name: "monotonic_lease", what: "a lease is measured by the clock that stands still while a machine is suspended", kills: "none",
		faults: "suspend", args: []string{"--claim-lead=200ms"},
		edits: []edit{{"dispatcher/engine/plan/fleet.go", "max(r.monotonic.Sub(earlier.monotonic), r.wall.Sub(earlier.wall))",
			"r.monotonic.Sub(earlier.monotonic)"}},
	},
	{
		name: "early", what: "a fire is not held until it is due", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/engine/plan/clock.go", "{ return t.Sub(c.Now()) }", "{ return t.Sub(c.Now()) - 40*time.Millisecond }"}},
	},
	{
		name: "silent_settle", what: "missed fires leave no record", kills: "none", faults: "restart,disk",
		edits: []edit{{"dispatcher/store/dispatch/store.go",
			"\n		`, m AS (` + insertDecisions + `), e AS (` + insertPendingMisfires + `)` + insertCaughtUp", " insertCaughtUp"}},
	},
	{
		name: "no_adoption", what: "the runs of a dead node are not adopted", kills: "K4,K6,K9", faults: "none",
		edits: []edit{{"dispatcher/engine/loops.go", "errors.Join(e.adopt(ctx), e.plan.ScheduleNext(ctx, nil, now))",
			"errors.Join(e.plan.ScheduleNext(ctx, nil, now))"}},
	},
	{
		name: "guessed_claim", what: "a claim without a response counts as failed", kills: "none", faults: "responses",
		edits: []edit{
			{"dispatcher/engine/plan/claim_tokens.go", "	// A shutdown does not end it at once,",
				"	if id != 0 {\n\t\treturn nil\n\t}\n	// A shutdown does not end it at once,"},
			{"dispatcher/engine/chores/fleet.go", "c.Plan.HeldBy(id, mine)", "c.Plan.HeldBy(id, mine[:0])"},
		},
	},
	{
		name: "no_begin", what: "an attempt at most once is sent before its begin is stored", kills: "K8,K9", faults: "none",
		edits: []edit{{"dispatcher/engine/begin.go", "	if a.call.Delivery != dispatcher.AtMostOnce {\n", "	if a.call.Delivery != \"\" {\n"}},
	},
	{
		name: "new_event_id", what: "each attempt has a new event id", kills: "K8,K9", faults: "none",
		edits: []edit{{"dispatcher/engine/plan/cache.go", "d.EventID(j.Installation, name, r.ScheduledAt, r.Kind)",
			"d.EventID(j.Installation, name+string(rune('a'+r.Attempt)), r.ScheduledAt, r.Kind)"}},
	},
	{
		name: "blind_slots", what: "slots are granted without a look at the taken ones", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/policy_concurrency.go", "			free--\n			verdicts[i] = c.resume()\n", "			verdicts[i] = c.resume()\n"}},
	},
	{
		name: "kept_slots", what: "the slot of a run lost with its node is not released", kills: "K8,K9", faults: "none",
		edits: []edit{{"dispatcher/store/dispatch/slots_decide.go", "		case c.Busy:\n", "		case c.slotNode != 0:\n"}},
	},
	{
		name: "hasty_retries", what: "a failed attempt is repeated at once", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/engine/retry.go", "next.At, next.CountsAsFailure = o.EndedAt.Add(wait)",
			"next.At, next.CountsAsFailure = o.EndedAt"}},
	},
	{
		name: "unfollowed_losses", what: "runs that are lost with their node are not followed", kills: "K8,K9", faults: "none",
		edits: []edit{{"dispatcher/store/dispatch/end.go", "WHEN 'lost' THEN (j.follows & 10) <> 0", "WHEN 'lost' THEN FALSE"}},
	},
	{
		name: "followed_again", what: "a run that fails again after a replay is followed again", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/store/feeds/follow.go", "		runs[i] = dispatch.QueuedRun{Key: followerKey(e, p.Follower),",
			"		key := followerKey(e, p.Follower)\n		key.TriggerID ^= int64(e.Attempt) << 1\n		runs[i] = dispatch.QueuedRun{Key: key,"}},
	},
	{
		name: "forgetful_alerts", what: "the state of an alert is not stored again once it is there", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/store/definitions/alerts.go", "track = excluded.track", "track = alert_states.track"}},
	},
	{
		name: "skipped_instants", what: "a backfill leaves out instants that it has no room for", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/store/feeds/backfills_feed.go", "queued, err := dispatch.QueueRuns(ctx, t, fresh)",
			"queued, err := dispatch.QueueRuns(ctx, t, fresh[len(fresh)/2:])"}},
	},
	{
		name: "forgotten_callbacks", what: "a callback that comes before its acceptance is stored is confirmed and forgotten",
		kills: "stop K9,stop K8", faults: "none",
		edits: []edit{{"dispatcher/store/feeds/runs_callbacks.go",
			"		if r.EndedAt != nil && r.Attempt == attempt && r.State == run.Succeeded {\n",
			"		if r.Attempt == attempt && (r.State == run.Succeeded || r.State == run.Claimed) {\n"}},
	},
	{
		name: "replayed_attempts", what: "the attempts of a run that is replayed are counted from the first again", kills: "none",
		faults: "none",
		edits:  []edit{{"dispatcher/store/feeds/runs_manual.go", "0, 0, r.attempt, 'queued'", "0, 0, 0, 'queued'"}},
	},
	{
		name: "left_slots", what: "slots of attempts that a rollback took are not freed", kills: "none", faults: "rollback",
		edits: []edit{{"dispatcher/engine/chores/fleet.go", "	if len(runs) == 0 {\n		return nil\n	}\n	if err := c.Store.ReleaseSlots",
			"	if len(runs) >= 0 {\n		return nil\n	}\n	if err := c.Store.ReleaseSlots"}},
	},
	{
		name: "whole_batches", what: "a bad row stops its whole batch", kills: "none", faults: "poison",
		edits: []edit{{"dispatcher/store/dispatch/set_aside.go", "	case !ofStored(ctx, err):\n		return err\n	case half == 0:",
			"	case !ofStored(ctx, nil):\n		return err\n	case half == 0:"}},
	},
	{
		name: "left_runs", what: "an import leaves out the runs that wait", kills: "none", faults: "import",
		edits: []edit{{"dispatcher/store/definitions/import.go", "	for _, run := range runs {\n		job := jobs[run.Job]",
			"	for _, run := range runs[:0] {\n		job := jobs[run.Job]"}},
	},
	{
		name: "stolen_locks", what: "a lock is taken from its holder", kills: "none", faults: "none",
		edits: []edit{
			{"dispatcher/store/dispatch/store.go", "o.locked_until <= b.now OR", "o.locked_until > 0 OR"},
			{"dispatcher/store/dispatch/store.go", "WHERE l.locked_until <= excluded.locked_until - $3 OR", "WHERE l.locked_until > 0 OR"},
		},
	},
}

// mutantSeconds is how long each mutant runs.
const mutantSeconds = 45

var lastLine = regexp.MustCompile(`(?m)^chaos: faults=.*`)

// runMutants requires that the checker objects to each mutant.
func runMutants(ctx context.Context, o options) error {
	var unnoticed []error
	for _, m := range mutants {
		if o.only != "" && o.only != m.name {
			continue
		}
		verdict, err := m.run(ctx, o)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", m.name, err)
		}
		fmt.Printf("mutant %s (%s): %s\n", m.name, m.what, verdict)
		if strings.HasSuffix(verdict, "lost=0 unexplained=0 early=0 overlaps=0 unrecovered=0") {
			unnoticed = append(unnoticed, fmt.Errorf("mutant %s was not noticed", m.name))
		}
	}
	return errors.Join(unnoticed...)
}

// run builds and runs a mutant, and returns the checker's last line.
func (m mutant) run(ctx context.Context, o options) (verdict string, err error) {
	o.dir, o.kills, o.faults, o.seconds = filepath.Join(o.dir, m.name), m.kills, m.faults, mutantSeconds
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return "", err
	}
	sources := map[string]string{}
	for _, e := range m.edits {
		source, edited := sources[e.file]
		if !edited {
			text, err := os.ReadFile(e.file)
			if err != nil {
				return "", err
			}
			source = string(text)
		}
		if strings.Count(source, e.old) != 1 {
			return "", fmt.Errorf("%s no longer contains %q exactly once; adapt the mutant", e.file, e.old)
		}
		sources[e.file] = strings.Replace(source, e.old, e.new, 1)
	}
	o.program, o.args = filepath.Join(o.dir, "carillon"), m.args
	if err := buildNode(ctx, o.program, o.dir, sources); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = runOnce(ctx, o, &out)
	if verdict = lastLine.FindString(out.String()); verdict == "" {
		return "", errors.Join(errors.New("the checker printed no verdict"), err)
	}
	return verdict, nil
}
