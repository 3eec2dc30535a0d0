package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// misfireSelected is what scanMisfire reads, of misfires AS m with their names.
const misfireSelected = `a.name, j.name, t.name, m.job_id, m.trigger_id, m.from_at, m.to_at, m.count, m.decision, m.reason, m.catch_up,
	m.node, m.decided_at
	FROM misfires AS m JOIN jobs AS j ON j.id = m.job_id JOIN apps AS a ON a.id = j.app_id JOIN triggers AS t ON t.id = m.trigger_id`

func scanMisfire(row scanner) (dispatcher.Misfire, error) {
	var m dispatcher.Misfire
	var catchUp *time.Time
	var node dispatcher.NodeID
	err := row.Scan(&m.App, &m.Job, &m.Trigger, &m.JobID, &m.TriggerID, instantColumn(&m.From), instantColumn(&m.To), &m.Count, &m.Decision,
		&m.Reason, optionalColumn(&catchUp), &node, instantColumn(&m.DecidedAt))
	if catchUp != nil {
		m.Run = dispatcher.RunKey{TriggerID: m.TriggerID, ScheduledAt: *catchUp, Kind: dispatcher.KindCatchUp}.String()
	}
	if node != 0 {
		m.Node = &node
	}
	return m, err
}

// Misfires returns a page of the decisions about missed fires, latest first.
func (s *store) Misfires(ctx context.Context, query dispatcher.RunQuery) ([]dispatcher.Misfire, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	of, err := s.idsOf(ctx, query.App, query.Job, query.Trigger)
	if err != nil {
		return nil, err
	}
	var w conditions
	if query.App != "" {
		w.add("j.app_id = %s", dispatcher.AppID(query.App))
	}
	if query.Job != "" {
		w.add("m.job_id = %s", of.job)
	}
	if query.Trigger != "" {
		w.add("m.trigger_id = %s", of.trigger)
	}
	if !query.From.IsZero() {
		w.add("m.to_at >= %s", query.From.UnixMilli())
	}
	if !query.To.IsZero() {
		w.add("m.from_at <= %s", query.To.UnixMilli())
	}
	if query.Page.Cursor != "" {
		key, err := dispatcher.ParseRunKey(query.Page.Cursor)
		if err != nil {
			return nil, fmt.Errorf("cursor %s: %w", dispatcher.Echo(query.Page.Cursor), err)
		}
		w.add("(m.from_at, m.trigger_id) < (%s, %s)", key.ScheduledAt.UnixMilli(), key.TriggerID)
	}
	list := `SELECT ` + misfireSelected + ` WHERE 1 = 1` + w.text +
		` ORDER BY m.from_at DESC, m.trigger_id DESC LIMIT ` + strconv.Itoa(query.Page.Limit)
	return collect(ctx, s.read, scanMisfire, list, w.args...)
}

// insertMisfires records what a change of a definition decided.
func (t *tx) insertMisfires(ctx context.Context, missed []dispatcher.Misfire) error {
	if len(missed) == 0 {
		return nil
	}
	var from, to, trigger, job, count, decided []int64
	var decision, reason []string
	for _, m := range missed {
		from, to = append(from, m.From.UnixMilli()), append(to, m.To.UnixMilli())
		trigger, job = append(trigger, m.TriggerID), append(job, m.JobID)
		count, decided = append(count, int64(m.Count)), append(decided, m.DecidedAt.UnixMilli())
		decision, reason = append(decision, string(m.Decision)), append(reason, m.Reason)
	}
	// From $1 on: misfireColumns
	insert := t.rows(0, 1, "", misfireColumns...) + ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision,
		reason, node, decided_at)
		SELECT b.from_at, b.to_at, b.trigger_id, b.job_id, b.missed, b.decision, b.reason, 0, b.decided_at FROM b WHERE 1 = 1
		ON CONFLICT DO NOTHING`
	if _, err := t.ExecContext(ctx, insert, t.batch(from, to, trigger, job, count, decision, reason, decided)...); err != nil {
		return fmt.Errorf("insert %d misfires: %w", len(missed), err)
	}
	// From $1 on: misfireColumns
	follow := t.rows(0, 1, "", misfireColumns...) + ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, attempt,
		http_status, state, class, error)
		SELECT b.decided_at, b.trigger_id, b.from_at, 0, b.job_id, 0, 0, '', '', '' FROM b
		JOIN jobs AS j ON j.id = b.job_id AND j.follows <> 0 WHERE (j.follows & 12) <> 0 ON CONFLICT DO NOTHING`
	if _, err := t.ExecContext(ctx, follow, t.batch(from, to, trigger, job, count, decision, reason, decided)...); err != nil {
		return fmt.Errorf("follow %d misfires: %w", len(missed), err)
	}
	return t.notifyEnds(ctx)
}
