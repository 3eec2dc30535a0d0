package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// poison is a way to make a row bad: a statement on it fails, or its content is invalid.
type poison struct {
	kind string
	on   string // the statement that the database refuses, and the row's column with the id of the job or of the trigger
	key  string
	when string
	// column and bad are instead a column and an invalid value for the row of the job. The old
	// value is restored: an unreadable job can be deleted, but not put.
	column, bad string
	// certain means that nodes meet the row within a few seconds without another fault.
	certain bool
}

// poisons are the bad rows, each of a different job. Every kind of work in batches over rows of many jobs meets one.
var poisons = []poison{
	{kind: "fire", on: "UPDATE ON trigger_clock", key: "id", when: "NEW.state = 'waiting'", certain: true},
	{kind: "record", on: "INSERT ON runs", key: "job_id", certain: true},
	{kind: "unfold", on: "INSERT ON live_runs", key: "job_id"},
	{kind: "adopt", on: "UPDATE ON live_runs", key: "job_id", when: "NEW.node > 0"},
	{kind: "slots", on: "INSERT ON slots", key: "job_id", certain: true},
	{kind: "states", on: "UPDATE ON jobs", key: "id", when: "NEW.deleted_at IS NULL"},
	{kind: "target", column: "target", bad: "{"},
	{kind: "payload", column: "payload", bad: "{"},
	{kind: "retries", column: "retry", bad: "["},
}

// refuse makes the database refuse the rows of jobs, without a lock that waits for a long snapshot.
const refuse = `CREATE TABLE watch.poison (kind TEXT, id BIGINT, was TEXT);
CREATE FUNCTION watch.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF EXISTS (SELECT 1 FROM watch.poison AS p WHERE p.kind = TG_ARGV[0] AND p.id = CAST(to_jsonb(NEW) ->> TG_ARGV[1] AS BIGINT)) THEN
		RAISE 'a value does not fit' USING ERRCODE = '22003';
	END IF;
	RETURN NEW;
END $$;
`

// ofJob selects the id of a poisoned job, or the ids of its triggers.
func (p poison) ofJob() string {
	job := fmt.Sprintf(`SELECT j.id FROM jobs AS j JOIN apps AS a ON a.id = j.app_id WHERE a.name = '%s' AND j.name = '%s'`,
		history.Poisoned, p.kind)
	if p.kind == "fire" {
		return `SELECT t.id FROM triggers AS t WHERE t.job_id IN (` + job + `)`
	}
	return job
}

// spoils returns the statement that makes the row bad.
func (p poison) spoils() string {
	if p.column == "" {
		return fmt.Sprintf(`INSERT INTO watch.poison SELECT '%s', x.id FROM (%s) AS x`, p.kind, p.ofJob())
	}
	return fmt.Sprintf(`WITH p AS (INSERT INTO watch.poison SELECT '%[1]s', j.id, j.%[2]s FROM jobs AS j
			WHERE j.%[2]s <> '%[3]s' AND j.id IN (%[4]s))
		UPDATE jobs SET %[2]s = '%[3]s' WHERE id IN (%[4]s)`, p.kind, p.column, p.bad, p.ofJob())
}

// mends returns the statement that repairs it.
func (p poison) mends() string {
	remove := `DELETE FROM watch.poison WHERE kind = '` + p.kind + `'`
	if p.column == "" {
		return remove
	}
	return `WITH p AS (` + remove + ` RETURNING id, was) UPDATE jobs SET ` + p.column + ` = p.was FROM p WHERE jobs.id = p.id`
}

func (p poison) job() job {
	j := job{app: history.Poisoned, name: p.kind, path: "/flaky", expression: "rate(1s)", retry: &steps}
	if p.kind == "slots" {
		j.concurrency = "queue"
	}
	return j
}

// declarePoisoned declares the jobs with rows to poison, and lets the database refuse rows on demand.
func (c *chaos) declarePoisoned(ctx context.Context) error {
	statements := []string{refuse}
	for _, p := range poisons {
		when := ""
		if p.when != "" {
			when = "WHEN (" + p.when + ") "
		}
		if p.on != "" {
			statements = append(statements, fmt.Sprintf(
				"CREATE TRIGGER poison_%s BEFORE %s FOR EACH ROW %sEXECUTE FUNCTION watch.refuse('%s', '%s')", p.kind, p.on, when, p.kind, p.key))
		}
	}
	for _, one := range statements { // not in one transaction: nodes lock these tables in another order
		if err := c.database.script(ctx, databaseName, one); err != nil {
			return fmt.Errorf("make rows that can be refused: %w", err)
		}
	}
	_, err := c.declared.send(ctx, http.MethodPut, "/v1/apps/"+history.Poisoned, "*", map[string]any{"enabled": true}, nil)
	if err != nil {
		return err
	}
	return all(ctx, poisons, func(ctx context.Context, p poison) error { return c.declared.put(ctx, p.job(), true) })
}

// poisonRows poisons rows, one kind after the other.
func (c *chaos) poisonRows(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		pause(ctx, c.between(200*time.Millisecond, time.Second))
		if err := c.poison(ctx, poisons[i%len(poisons)]); err != nil && ctx.Err() == nil {
			c.trouble(err)
		}
	}
}

// poison poisons a row for a while, checks whether that is shown, and repairs it.
func (c *chaos) poison(ctx context.Context, p poison) error {
	f := history.Poisoning{Kind: p.kind, Certain: p.certain, From: time.Now()}
	if err := c.insist(ctx, p.spoils()); err != nil {
		return err
	}
	for until := time.Now().Add(c.between(c.life*3/5, c.life*8/5)); time.Now().Before(until) && ctx.Err() == nil; {
		if f.Reason == "" {
			f.Work, f.Reason = c.shown(ctx, p)
		}
		if f.Work != "" && !f.Counted {
			f.Counted = c.counted(ctx, f.Work)
		}
		pause(ctx, 200*time.Millisecond)
	}
	f.Curtailed = ctx.Err() != nil
	if err := c.mend(ctx, p); err != nil {
		return fmt.Errorf("mend the poisoned row of job %s: %w", p.kind, err)
	}
	f.Mended = time.Now()
	c.note(history.Poison+p.kind, "", f.From, f.Mended)
	return c.poisonings.Append(f)
}

// mend repairs a row and puts its job, like an operator who has read the reason.
func (c *chaos) mend(ctx context.Context, p poison) error {
	ctx = context.WithoutCancel(ctx)
	if err := c.insist(ctx, p.mends()); err != nil {
		return err
	}
	return c.declared.put(ctx, p.job(), true)
}

// insist repeats a statement until the database accepts it.
func (c *chaos) insist(ctx context.Context, statement string) (err error) {
	for patience := time.Now().Add(30 * time.Second); time.Now().Before(patience); pause(ctx, 100*time.Millisecond) {
		if err = c.database.Execute(ctx, databaseName, statement); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", statement, err)
}

// shown returns the displayed reason for the problem of a job, and the work that continues without
// its row if that is set aside. It returns "" without a problem or without a response.
func (c *chaos) shown(ctx context.Context, p poison) (work, reason string) {
	n := c.nodes[c.intN(len(c.nodes))]
	response, err := c.declared.ask(ctx, n, http.MethodGet, "/v1/attention?app="+history.Poisoned, "", nil)
	if err != nil || response.status != http.StatusOK {
		return "", ""
	}
	type list struct {
		Items []struct{ Job, Problem, Error, Work string }
	}
	var attention struct {
		Quarantined, Failed list
		SetAside            list `json:"set_aside"`
	}
	if json.Unmarshal(response.body, &attention) != nil {
		return "", ""
	}
	for _, one := range attention.SetAside.Items {
		if one.Job == p.kind {
			return one.Work, one.Problem
		}
	}
	explained := attention.Quarantined.Items
	if p.column != "" { // other runs fail because of their receiver
		explained = append(explained, attention.Failed.Items...)
	}
	for _, one := range explained {
		if one.Job == p.kind && one.Error != "" {
			return "", one.Error
		}
	}
	return "", ""
}

// counted reports whether a node has counted rows of the app that a work skips.
func (c *chaos) counted(ctx context.Context, work string) bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		response, err := c.declared.ask(ctx, n, http.MethodGet, "/metrics", "", nil)
		_, rest, found := bytes.Cut(response.body, []byte(`carillon_set_aside_total{app="`+history.Poisoned+`",work="`+work+`"} `))
		return err == nil && found && !bytes.HasPrefix(rest, []byte("0\n"))
	})
}

// mendAll repairs the remaining bad rows after all faults.
func (c *chaos) mendAll(ctx context.Context) error {
	if c.poisonings == nil {
		return nil
	}
	if err := all(ctx, poisons, c.mend); err != nil {
		return err
	}
	return c.poisonings.Append(history.Poisoning{Kind: history.AllMended, Mended: time.Now()})
}

// removePoisoned deletes the poisoned jobs with all their data.
func (c *chaos) removePoisoned(ctx context.Context) error {
	if c.poisonings == nil {
		return nil
	}
	err := all(ctx, poisons, func(ctx context.Context, p poison) error { return c.declared.remove(ctx, history.Poisoned, p.kind) })
	return errors.Join(err, c.poisonings.Close())
}
