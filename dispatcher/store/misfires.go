package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
)

func scanMisfire(row scanner) (dispatcher.Misfire, error) {
	var m dispatcher.Misfire
	var from, to, decided, trigger int64
	var catchUp *int64
	var node dispatcher.NodeID
	err := row.Scan(&m.App, &m.Job, &m.Trigger, &trigger, &from, &to, &m.Count, &m.Decision, &m.Reason, &catchUp, &node, &decided)
	m.From, m.To, m.DecidedAt = instant(from), instant(to), instant(decided)
	if catchUp != nil {
		m.Run = dispatcher.RunKey{TriggerID: trigger, ScheduledAt: instant(*catchUp), Kind: dispatcher.KindCatchUp}.String()
	}
	if node != 0 {
		m.Node = &node
	}
	return m, err
}

func (s *store) Misfires(ctx context.Context, query dispatcher.RunQuery) ([]dispatcher.Misfire, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if err := s.known(ctx, query.App, query.Job, query.Trigger); err != nil {
		return nil, err
	}
	var w where
	if query.App != "" {
		w.add("j.app_id = %s", dispatcher.AppID(query.App))
	}
	if query.Job != "" {
		w.add("m.job_id = %s", dispatcher.JobID(query.App, query.Job))
	}
	if query.Trigger != "" {
		w.add("m.trigger_id = %s", dispatcher.TriggerID(query.App, query.Job, query.Trigger))
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
	list := `SELECT a.name, j.name, t.name, m.trigger_id, m.from_at, m.to_at, m.count, m.decision, m.reason, m.catch_up, m.node, m.decided_at
		FROM misfires AS m JOIN jobs AS j ON j.id = m.job_id JOIN apps AS a ON a.id = j.app_id JOIN triggers AS t ON t.id = m.trigger_id
		WHERE 1 = 1` + w.and() + ` ORDER BY m.from_at DESC, m.trigger_id DESC LIMIT ` + strconv.Itoa(query.Page.Limit)
	return collect(ctx, s.read, scanMisfire, list, w.args...)
}

// insertMisfires records what a change of a definition decided.
func (t *tx) insertMisfires(ctx context.Context, missed []dispatcher.Misfire) error {
	for _, m := range missed {
		// $1 first, $2 last missed instant, $3 trigger, $4 job, $5 count, $6 decision, $7 reason, $8 now
		const insert = `INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node, decided_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8) ON CONFLICT DO NOTHING`
		_, err := t.ExecContext(ctx, insert, m.From.UnixMilli(), m.To.UnixMilli(), dispatcher.TriggerID(m.App, m.Job, m.Trigger),
			dispatcher.JobID(m.App, m.Job), m.Count, m.Decision, m.Reason, m.DecidedAt.UnixMilli())
		if err != nil {
			return fmt.Errorf("misfire of trigger %s/%s/%s: %w", m.App, m.Job, m.Trigger, err)
		}
	}
	return nil
}
