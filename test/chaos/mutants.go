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

// mutant is a way to break the product on purpose: edits of its source, and the faults under
// which it must then be noticed.
type mutant struct {
	name, what    string
	edits         []edit
	kills, faults string
	args          []string // of the nodes, besides the usual
}

// edit replaces a text that a file has once.
type edit struct{ file, old, new string }

// mutants are the promises of the engine, each broken once.
var mutants = []mutant{
	{
		name: "no_fence", what: "anyone who records an outcome is believed", kills: "stop K8,stop K9", faults: "none",
		edits: []edit{{"dispatcher/store/dispatch_sql.go", "fence = sameRun + ` AND r.token = b.token AND r.attempt = b.attempt AND r.live = b.yes`", "fence = sameRun"}},
	},
	{
		name: "split_claim", what: "the trigger is advanced in one statement and the run inserted in another", kills: "K3", faults: "none",
		edits: []edit{
			{"dispatcher/store/postgres.go", "	all.claim = write(claim + insertNewRuns)\n	all.claim.orElse = claim + insertRuns\n",
				"	_ = claim\n	all.claim = write(p.rows(3, 5, claimExtra, advanceColumns...)+` `+advance+` AND $2::bigint <> 0`,\n" +
					"		p.rows(3, 5, claimExtra, advanceColumns...)+chosen(`SELECT `+claimedRow+` FROM b JOIN triggers AS t ON t.id = b.id" +
					" AND t.prev_fire_time = b.next AND $4::bigint >= 0`)+insertRuns)\n"},
			{"dispatcher/store/postgres.go", "	affected, err := p.query(ctx, hot.parts[0], args, scan)\n",
				"	if len(hot.parts) > 1 {\n		if _, err := p.query(ctx, hot.parts[0], args, scan); err != nil {\n			return 0, err\n		}\n	}\n" +
					"	affected, err := p.query(ctx, hot.parts[len(hot.parts)-1], args, scan)\n"},
		},
	},
	{
		name: "no_lease", what: "a node sends without looking at its lease", kills: "stop K5,stop K4", faults: "none",
		args:  []string{"--claim-lead=200ms"}, // so that what is claimed waits for its instant as the node freezes
		edits: []edit{{"dispatcher/engine/fleet.go", "	return time.Now().Before(f.leaseUntil)\n", "	return true\n"}},
	},
	{
		name: "early", what: "a fire is not held until it is due", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/engine/clock.go", "{ return t.Sub(c.now()) }", "{ return t.Sub(c.now()) - 40*time.Millisecond }"}},
	},
	{
		name: "silent_settle", what: "missed fires are passed over without a record", kills: "none", faults: "restart,disk",
		edits: []edit{{"dispatcher/store/postgres.go", "`, m AS (` + insertDecisions + `)` + insertRuns", "insertRuns"}},
	},
	{
		name: "no_adoption", what: "nobody takes what a dead node held", kills: "K4,K6,K9", faults: "none",
		edits: []edit{{"dispatcher/engine/handler.go", "errors.Join(e.adopt(ctx), e.rearm(ctx, nil, now))", "errors.Join(e.rearm(ctx, nil, now))"}},
	},
	{
		name: "guessed_commit", what: "a claim whose response is lost counts as lost", kills: "none", faults: "responses",
		edits: []edit{
			{"dispatcher/engine/claim.go", "	// A shutdown does not end it at once:", "	if node != 0 {\n\t\treturn nil\n\t}\n	// A shutdown does not end it at once:"},
			{"dispatcher/engine/handler.go", "	if len(mine) > 0 {\n", "	if len(mine) > 0 && node == 0 {\n"},
		},
	},
	{
		name: "no_intent", what: "requests wanted once at most are sent without being begun", kills: "K8,K9", faults: "none",
		edits: []edit{{"dispatcher/engine/attempt.go", "may := call.Delivery != dispatcher.AtMostOnce || e.intents.commit(ctx, run.HeldRun)", "may := call.Delivery != \"\" || e.intents.commit(ctx, run.HeldRun)"}},
	},
	{
		name: "new_event_id", what: "each attempt has an event id of its own", kills: "K8,K9", faults: "none",
		edits: []edit{{"dispatcher/engine/jobs.go", "d.Name, name, run.ScheduledAt, run.Kind)", "d.Name, name+string(rune('a'+run.Attempt)), run.ScheduledAt, run.Kind)"}},
	},
	{
		name: "blind_slots", what: "slots are given without looking at who has one", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/concurrency.go", "			free--\n			verdicts[i] = c.resume()\n", "			verdicts[i] = c.resume()\n"}},
	},
	{
		name: "kept_slots", what: "the slot of a run that was lost with its node is not passed on", kills: "K8,K9", faults: "none",
		edits: []edit{{"dispatcher/store/slots_decide.go", "case busy && slot.Token != runToken:", "case slot.Token != runToken:"}},
	},
	{
		name: "hasty_retries", what: "what failed is attempted again at once", kills: "none", faults: "none",
		edits: []edit{{"dispatcher/engine/retry.go", "next.At, next.Spent = o.EndedAt.Add(wait)", "next.At, next.Spent = o.EndedAt"}},
	},
	{
		name: "stolen_locks", what: "a lock is taken from anyone who has it", kills: "none", faults: "none",
		edits: []edit{
			{"dispatcher/store/locks.go", "o.locked_until <= b.now OR", "o.locked_until > 0 OR"},
			{"dispatcher/store/locks.go", "WHERE l.locked_until <= excluded.locked_until - $3 OR", "WHERE l.locked_until > 0 OR"},
		},
	},
}

// mutantSeconds is how long each is given to show.
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
			return "", fmt.Errorf("%s does not have %q once any more; fit the mutant to it", e.file, e.old)
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
		return "", errors.Join(errors.New("the checker said nothing"), err)
	}
	return verdict, nil
}
