package main

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// afterwards is what is known of what follows runs, of alerts, backfills and callbacks.
type afterwards struct {
	later      []laterRun // of the kinds that are not caused by a trigger
	events     []alertEvent
	firing     map[string]bool // conditions of alerts that hold at the end, by job and condition
	pending    int             // ends that are yet to be followed
	backfilled []backfilled
	asked      []history.Backfill
	callbacks  []history.Callback
}

// The kinds of run that are not caused by a trigger, as the database has them.
const (
	chained   = 4
	backfill  = 5
	notifying = 6
	delivery  = 7
)

// laterRun is a run of one of these kinds.
type laterRun struct {
	fire
	app, job     string // a delivery has the name of the job that it belongs to, a dot and the event
	attempt      int
	live         bool
	state, class string
	ended        *int64
	cause
}

// cause is what a run was given.
type cause struct {
	Cause struct {
		Run, On, Alert, Backfill string
	}
	Payload struct {
		// Of what follows a run.
		Parent struct {
			Job, Trigger string
			ScheduledAt  time.Time `json:"scheduled_at"`
		}
		telling // of a notification
		Others  []telling
	}
}

// telling is a transition of a condition that a notification tells.
type telling struct {
	Job, Condition, Transition string
	Sequence                   int
}

// alertEvent is a transition of an alert.
type alertEvent struct {
	at  int64
	job string
	transition
}

type transition struct {
	Condition, Transition string
	Sequence              int
	Run                   string
	Kept                  string // why it was not notified; empty if it was
}

// backfilled is a backfill, and how far it is.
type backfilled struct {
	job, state                                          string
	total, queued, skipped, succeeded, failed, canceled int
}

// idEncoding is that of the ids of runs.
var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// id returns the id of a run: its instant, trigger and kind.
func (f fire) id() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(f.at)<<16)
	binary.BigEndian.PutUint64(b[6:14], uint64(f.trigger))
	b[14] = byte(f.kind)
	return idEncoding.EncodeToString(b[:15])
}

func (h *record) loadAfterwards(ctx context.Context, conn *pgx.Conn) (err error) {
	if h.later, err = rows(ctx, conn, func(r *laterRun, row pgx.Rows) error {
		var input string
		err := row.Scan(&r.trigger, &r.at, &r.kind, &r.attempt, &r.live, &r.state, &r.class, &r.ended, &r.app, &r.job, &input)
		if err == nil && input != "" {
			err = json.Unmarshal([]byte(input), &r.cause)
		}
		return err
	}, `SELECT r.trigger_id, r.scheduled_at, r.kind, r.attempt, r.live, r.state, r.class, r.ended_at, a.name, j.name, coalesce(i.input, '')
		FROM (SELECT trigger_id, scheduled_at, kind, job_id, attempt, FALSE AS live, coalesce(state, 'succeeded') AS state,
				coalesce(class, '') AS class, ended_at FROM runs WHERE kind > 3
			UNION ALL SELECT trigger_id, scheduled_at, kind, job_id, attempt, TRUE, state, class, NULL FROM live_runs WHERE kind > 3) AS r
		JOIN jobs AS j ON j.id = r.job_id JOIN apps AS a ON a.id = j.app_id
		LEFT JOIN run_inputs AS i USING (scheduled_at, trigger_id, kind)`); err != nil {
		return err
	}
	if h.events, err = rows(ctx, conn, func(e *alertEvent, row pgx.Rows) error {
		var event string
		if err := row.Scan(&e.at, &e.job, &event); err != nil {
			return err
		}
		return json.Unmarshal([]byte(event), &e.transition)
	}, `SELECT at, job, event FROM alert_events ORDER BY job, at`); err != nil {
		return err
	}
	names, err := rows(ctx, conn, func(name *string, row pgx.Rows) error { return row.Scan(name) },
		`SELECT j.name || '/' || s.condition FROM alert_states AS s JOIN jobs AS j ON j.id = s.job_id WHERE s.firing`)
	if err != nil {
		return err
	}
	h.firing = map[string]bool{}
	for _, name := range names {
		h.firing[name] = true
	}
	if err = conn.QueryRow(ctx, `SELECT count(*) FROM pending_ends`).Scan(&h.pending); err != nil {
		return err
	}
	h.backfilled, err = rows(ctx, conn, func(b *backfilled, row pgx.Rows) error {
		return row.Scan(&b.job, &b.state, &b.total, &b.queued, &b.skipped, &b.succeeded, &b.failed, &b.canceled)
	}, `SELECT j.name, f.state, f.total, f.queued, f.skipped, f.succeeded, f.failed, f.cancelled
		FROM backfills AS f JOIN jobs AS j ON j.id = f.job_id`)
	return err
}
