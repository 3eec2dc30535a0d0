package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// purgedRows are rows of a table that Purge deletes. The row of evil cannot be deleted.
type purgedRows struct {
	table string
	rows  []string // statements that write a row of each app
	bad   string   // spoils a row ROW
	left  string   // the rows to delete
	// ofNoApp: the rows belong to no app.
	ofNoApp bool
}

// purged lists all tables that Purge deletes from. In each statement %[1]d is a time long ago, %[2]d and %[3]d are
// the apps evil and victim, and %[4]d and %[5]d their jobs.
var purged = []purgedRows{
	{table: "misfires", bad: "ROW.job_id = %[4]d", left: `FROM misfires`, rows: []string{
		`INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node, decided_at)
			SELECT %[1]d, %[1]d, id, id, 1, 'skipped', '', 0, %[1]d FROM jobs`}},
	{table: "trigger_revisions", bad: "ROW.job_id = %[4]d", left: `FROM trigger_revisions`, rows: []string{
		`UPDATE trigger_revisions SET to_at = %[1]d`}},
	{table: "calendar_revisions", bad: "ROW.app_id = %[2]d", left: `FROM calendar_revisions`, rows: []string{
		`INSERT INTO calendar_revisions (app_id, calendar_revision, name, to_at) SELECT id, 1, 'c', %[1]d FROM apps`}},
	{table: "backfills", bad: "ROW.job_id = %[4]d", left: `FROM backfills`, rows: []string{
		`INSERT INTO backfills (id, app_id, job_id, spec, schedules, state, total, created_by, traceparent, created_at, ended_at)
			SELECT id, app_id, id, '{}', '{}', 'complete', 1, '', '', %[1]d, %[1]d FROM jobs`}},
	{table: "bulk_actions", bad: "ROW.app_id = %[2]d", left: `FROM bulk_actions`, rows: []string{
		`INSERT INTO bulk_actions (id, app_id, spec, state, total, more, created_by, token_id, address, request_id, traceparent, created_at,
			ended_at) SELECT id, id, '{}', 'complete', 1, (1 = 0), '', '', '', '', '', %[1]d, %[1]d FROM apps`}},
	{table: "app_pauses", bad: "ROW.app_id = %[2]d", left: `FROM app_pauses`, rows: []string{
		`INSERT INTO app_pauses (app_id, id, labels, reason, paused_by, paused_at, ended_at)
			SELECT id, 'p', '', '', '', %[1]d, %[1]d FROM apps`}},
	{table: "alert_events", bad: "ROW.app_id = %[2]d", left: `FROM alert_events`, rows: []string{
		`INSERT INTO alert_events (app_id, at, id, alert, job, event) SELECT id, %[1]d, 1, 'a', 'job', '{}' FROM apps`}},
	{table: "alerts", bad: "ROW.app_id = %[2]d", left: `FROM alerts`, rows: []string{
		`INSERT INTO alerts (id, app_id, name, description, definition, job_id, revision, created_at, updated_at, deleted_at)
			SELECT id, id, 'a', '', '{}', 1, 1, %[1]d, %[1]d, %[1]d FROM apps`}},
	{table: "audit_log", bad: "ROW.app = 'evil' AND ROW.at = %[1]d", left: `FROM audit_log WHERE at = %[1]d`, rows: []string{
		`UPDATE audit_log SET at = %[1]d WHERE subject LIKE 'job %'`}},
	{table: "sessions", bad: "ROW.id = 'a'", left: `FROM sessions`, ofNoApp: true, rows: []string{
		`INSERT INTO sessions (id, hash, token_id, rules, apps, created_at, used_at, ends_at) VALUES ('a', 'a', '', '', '', 1, 1, 1),
			('b', 'b', '', '', '', 2, 2, 2)`}},
	{table: "triggers", bad: "ROW.job_id = %[4]d", left: `FROM triggers`, rows: []string{
		`DELETE FROM trigger_revisions`, `UPDATE triggers SET deleted_at = %[1]d`}},
	{table: "trigger_clock", bad: "ROW.app_id = %[2]d", left: `FROM trigger_clock`, rows: []string{
		`DELETE FROM trigger_revisions`, `UPDATE triggers SET deleted_at = %[1]d`}},
	{table: "jobs", bad: "ROW.id = %[4]d", left: `FROM jobs`, rows: []string{
		`UPDATE jobs SET deleted_at = %[1]d`}},
	{table: "carried_states", bad: "ROW.job_id = %[4]d", left: `FROM carried_states`, rows: []string{
		`INSERT INTO carried_states (job_id, revision, updated_at) SELECT id, 1, %[1]d FROM jobs`, `UPDATE jobs SET deleted_at = %[1]d`}},
	{table: "slots", bad: "ROW.job_id = %[4]d", left: `FROM slots`, rows: []string{
		`INSERT INTO slots (job_id, scheduled_at, trigger_id, kind, endpoint, node, token, since) SELECT id, 1, 1, 1, '', 0, 0, 1 FROM jobs`,
		`UPDATE jobs SET deleted_at = %[1]d`}},
	{table: "host_waits", bad: "ROW.job_id = %[4]d", left: `FROM host_waits`, rows: []string{
		`INSERT INTO host_waits (id, app_id, job_id, host, pause, probe_at) SELECT id, app_id, id, 'h', 1, 1 FROM jobs`,
		`UPDATE jobs SET deleted_at = %[1]d`}},
	{table: "runs", bad: "ROW.job_id = %[4]d", left: `FROM runs`, rows: []string{oldRuns}},
	{table: "attempts", bad: "ROW.trigger_id = %[4]d", left: `FROM attempts`, rows: []string{oldRuns,
		`INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status, state, class, error)
			SELECT %[1]d, id, 2, 1, 1, 1, 1, 0, 'failed', '', '' FROM jobs`}},
	{table: "responses", bad: "ROW.trigger_id = %[4]d", left: `FROM responses`, rows: []string{oldRuns,
		`INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response) SELECT %[1]d, id, 2, 1, '{}' FROM jobs`}},
	{table: "run_inputs", bad: "ROW.trigger_id = %[4]d", left: `FROM run_inputs`, rows: []string{oldRuns,
		`INSERT INTO run_inputs (scheduled_at, trigger_id, kind, input) SELECT %[1]d, id, 2, '{}' FROM jobs`}},
	{table: "broadcasts", bad: "ROW.trigger_id = %[4]d", left: `FROM broadcasts`, rows: []string{oldRuns,
		`INSERT INTO broadcasts (scheduled_at, trigger_id, kind, endpoints) SELECT %[1]d, id, 2, '[]' FROM jobs`}},
}

const oldRuns = `INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, attempt, http_status)
	SELECT %[1]d, id, 2, id, 1, 1, %[1]d, 1, 200 FROM jobs`

// purgeBatches are the batches of Purge.
func purgeBatches() (all []poisonedBatch) {
	purge := func(r *batchRig) error {
		_, err := r.Purge(r.Context(), batchNode, time.Time{})
		return err
	}
	args := func(r *batchRig) []int64 {
		return []int64{r.now.Add(-1000 * 24 * time.Hour).UnixMilli(), run.AppID("evil"), run.AppID("victim"), r.job("evil"), r.job("victim")}
	}
	filled := func(r *batchRig, text string) string {
		for i, arg := range args(r) {
			text = strings.ReplaceAll(text, "%["+string(rune('1'+i))+"]d", strconv.FormatInt(arg, 10))
		}
		return text
	}
	for _, rows := range purged {
		all = append(all, poisonedBatch{
			name: "purge: one of the " + rows.table, methods: []string{"Purge"}, work: dispatcher.WorkPurge, ofNoApp: rows.ofNoApp,
			poison: func(r *batchRig) {
				r.firing("rate(1m)", nil)
				for _, statement := range rows.rows {
					r.exec("%s", filled(r, statement))
				}
				r.refuse("DELETE", rows.table, "%s", filled(r, rows.bad))
			},
			call:   purge,
			goesOn: func(r *batchRig) bool { return r.count("SELECT count(*) %s", filled(r, rows.left)) == 1 }, // of evil
		})
	}
	// single makes the apps keep less than another one.
	single := func(r *batchRig) {
		r.jobs(nil)
		_, _, err := r.PutApp(r.Context(), access.App{Name: "keeper", AppSpec: access.AppSpec{Enabled: true}}, r.change())
		must(r.T, err)
		r.exec(`UPDATE apps SET retention = 86400000 WHERE name <> 'keeper'`)
		r.exec(`UPDATE apps SET history_from = 0`)
		for trigger := range 2 {
			r.exec(`INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node, decided_at)
				SELECT %[1]d, %[1]d, id + %[2]d, id, 1, 'skipped', '', 0, %[1]d FROM jobs`, r.now.Add(-10*24*time.Hour).UnixMilli(), trigger)
		}
	}
	return append(all, poisonedBatch{
		name: "purge: an expired misfire that other apps would keep", methods: []string{"Purge"}, work: dispatcher.WorkPurge,
		poison: func(r *batchRig) {
			single(r)
			r.refuse("DELETE", "misfires", "ROW.trigger_id = %d", r.job("evil"))
		},
		call: purge, goesOn: func(r *batchRig) bool { return r.count(`SELECT count(*) FROM misfires`) == 1 },
	}, poisonedBatch{
		name: "purge: the sweep of an app cannot be noted", methods: []string{"Purge"}, work: dispatcher.WorkPurge,
		poison: func(r *batchRig) {
			single(r)
			r.refuse("UPDATE", "apps", "ROW.name = 'evil'")
		},
		call: purge, goesOn: func(r *batchRig) bool {
			return r.count(`SELECT count(*) FROM apps WHERE history_from > 0 AND name = 'victim'`) == 1
		},
	})
}

// purged lists every table that Purge deletes from.
func TestEachPartOfPurgeIsPoisoned(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("retention/*.go")
	must(t, err)
	poisoned := map[string]bool{}
	for _, rows := range purged {
		poisoned[rows.table] = true
	}
	named := regexp.MustCompile(`DELETE FROM (\w+)|\btable: "(\w+)"|range \[\]string\{("\w+"(?:, "\w+")*)\}`)
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		must(t, err)
		for _, match := range named.FindAllStringSubmatch(string(source), -1) {
			for _, table := range strings.Split(strings.ReplaceAll(match[1]+match[2]+match[3], `"`, ""), ", ") {
				if found++; !poisoned[table] {
					t.Errorf("%s removes rows of %s, which no case of purged poisons", file, table)
				}
			}
		}
	}
	if found < len(purged) {
		t.Errorf("found %d tables in %v, want those of all %d cases", found, files, len(purged))
	}
}
