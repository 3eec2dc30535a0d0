package dispatch

import (
	"encoding/json"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// PauseColumn is NULL for no pause.
func PauseColumn(p *dispatcher.Pause) any {
	return orDefault(p, dispatcher.Pause{}, func(text string) (pause dispatcher.Pause) {
		_ = json.Unmarshal([]byte(text), &pause) // it stays a pause without this
		return pause
	}, PauseText)
}

// PauseText is the stored text of a pause.
func PauseText(p dispatcher.Pause) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and a time always marshal
	}
	return string(text)
}

// TriggerFields are the columns of triggers AS t: the declaration of a trigger.
var TriggerFields = db.Fields[TriggerRow]{
	{Name: "id", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.ID }, Use: db.NeverSet},
	{Name: "job_id", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.JobID }, Use: db.NeverSet},
	{Name: "app_id", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.AppID }, Use: db.NeverSet},
	{Name: "revision", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.Revision }},
	{Name: "name", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Name }},
	{Name: "origin", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Origin }},
	{Name: "expression", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Expression }},
	{Name: "dialect", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Dialect }},
	{Name: "timezone", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Timezone }},
	{Name: "start_at", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.StartAt) }},
	{Name: "end_at", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.EndAt) }},
	{Name: "repeat_count", Type: db.Integer, Ref: func(t *TriggerRow) any { return &t.RepeatCount }},
	{Name: "gap", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Gap }},
	{Name: "overlap", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Overlap }},
	{Name: "misfire_after", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.DurationColumn(&t.MisfireAfter) }},
	{Name: "enabled", Type: db.Boolean, Ref: func(t *TriggerRow) any { return &t.Enabled }},
	{Name: "paused", Type: db.Boolean, Ref: func(t *TriggerRow) any { return &t.Paused }},
	{Name: "pause", Type: db.Text, Ref: func(t *TriggerRow) any { return PauseColumn(&t.Pause) }},
	{Name: "paused_at", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.PausedAt) }, Use: db.OnlyWritten},
	{Name: "pause_until", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.PausedUntil) }, Use: db.OnlyWritten},
	{Name: "job_paused", Type: db.Boolean, Ref: func(t *TriggerRow) any { return &t.JobPaused }},
	{Name: "error", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Error }},
	{Name: "anchor_at", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.InstantColumn(&t.AnchorAt) }},
	{Name: "jitter", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.DurationColumn(&t.Jitter) }},
	{Name: "fired", Type: db.Integer, Ref: func(t *TriggerRow) any { return &t.Fired }},
	{Name: "counted_from", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.CountedFrom) }},
	{Name: "drift_hour", Type: db.Boolean, Ref: func(t *TriggerRow) any { return &t.DriftHour }},
	{Name: "calendar", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.Calendar }},
	{Name: "on_excluded", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.OnExcluded }},
	{Name: "node_labels", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.NodeLabels }},
	{Name: "misfire_policy", Type: db.Text, Ref: func(t *TriggerRow) any { return policyColumn(&t.MisfirePolicy) }},
	{Name: "catch_up_window", Type: db.Bigint, Ref: func(t *TriggerRow) any { return windowColumn(&t.CatchUpWindow) }},
	{Name: "attempt_timeout", Type: db.Bigint, Ref: func(t *TriggerRow) any { return timeoutColumn(&t.Timeout) }},
	{Name: "delayed", Type: db.Boolean, Ref: func(t *TriggerRow) any { return new(t.IsDelay()) }, Use: db.OnlyWritten},
}

// ClockFields are the columns of trigger_clock AS c: the columns that each fire rewrites, and copies of those that a
// poll or a claim compares. writeTriggers writes off, so that it can preserve some bits; the end of a run writes
// ended_at.
var ClockFields = db.Fields[TriggerRow]{
	{Name: "id", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.ID }, Use: db.OnlyNew},
	{Name: "app_id", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.AppID }, Use: db.OnlyNew},
	{Name: "revision", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.Revision }, Use: db.OnlyWritten},
	{Name: "calendar_revision", Type: db.Bigint, Ref: func(t *TriggerRow) any { return &t.Calendars }},
	{Name: "next_fire_time", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.NextFireTime) }},
	{Name: "due_at", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.DueAt) }},
	{Name: "prev_fire_time", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.OptionalColumn(&t.PrevFireTime) }},
	{Name: "misfire_after", Type: db.Bigint, Ref: func(t *TriggerRow) any { return db.DurationColumn(&t.MisfireAfter) }, Use: db.OnlyWritten},
	{Name: "attempt_timeout", Type: db.Bigint, Ref: func(t *TriggerRow) any { return timeoutColumn(&t.Timeout) }, Use: db.OnlyWritten},
	{Name: "off", Type: db.Integer, Ref: func(t *TriggerRow) any { return &t.Off }, Use: db.OnlyNew},
	// A disabled fixed delay does not wait for the end of a run: it starts again once it is enabled.
	{Name: "delayed", Type: db.Boolean, Ref: func(t *TriggerRow) any { return new(t.IsDelay() && t.Fires) }, Use: db.OnlyWritten},
	{Name: "state", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.State }},
	{Name: "node_labels", Type: db.Text, Ref: func(t *TriggerRow) any { return &t.NodeLabels }, Use: db.OnlyWritten},
}

// TriggerRead and clockRead are the fields of a trigger, and TriggerColumns selects them from WithClock.
var (
	TriggerRead    = TriggerFields.Read()
	clockRead      = ClockFields.Read()
	TriggerColumns = TriggerRead.Selected("t.") + ", " + clockRead.Selected("c.")
)

// WithClock joins the clocks of triggers AS t.
const WithClock = ` JOIN trigger_clock AS c ON c.id = t.id`

// TheseTriggers are those of a batch of ids. The double join by the batch's ids forces the planner to begin with the
// batch.
const TheseTriggers = ` FROM b JOIN triggers AS t ON t.id = b.id JOIN trigger_clock AS c ON c.id = b.id`

// TriggerRow is a trigger with its keys.
type TriggerRow struct {
	dispatcher.Trigger
	ID, JobID, AppID, Revision, Calendars int64
	Name, NodeLabels                      string
	JobPaused                             bool
	Timeout                               input.Duration // of an attempt of the job
	Off                                   int            // for writing
	Fires                                 bool           // for writing: it and its job are enabled
}

// ScanTrigger reads the row of a trigger.
func ScanTrigger(row db.Scanner) (TriggerRow, error) {
	var t TriggerRow
	err := row.Scan(append(TriggerRead.Refs(&t), clockRead.Refs(&t)...)...)
	t.State = ShownState(t.State, t.Paused || t.JobPaused)
	return t, err
}

// ShownState is the state of a trigger as users see it. A pause is not stored as a state.
func ShownState(stored dispatcher.TriggerState, paused bool) dispatcher.TriggerState {
	if stored == dispatcher.TriggerWaiting && paused {
		return dispatcher.TriggerPaused
	}
	return stored
}

// policyColumn, windowColumn and timeoutColumn are NULL for the default, which takes no space in a row.
func policyColumn(p *dispatcher.MisfirePolicy) any {
	return orDefault(p, dispatcher.FireOnce, func(text string) dispatcher.MisfirePolicy { return dispatcher.MisfirePolicy(text) },
		func(policy dispatcher.MisfirePolicy) string { return string(policy) })
}

func windowColumn(d *input.Duration) any {
	return orDefault(d, dispatcher.MaxCatchUpWindow, db.Millis, db.ToMillis)
}

func timeoutColumn(d *input.Duration) any {
	return orDefault(d, target.DefaultTimeout, db.Millis, db.ToMillis)
}

// orDefault is a value stored as NULL if it is the usual one.
func orDefault[T comparable, V any](at *T, usual T, from func(V) T, to func(T) V) any {
	return db.ConvertedColumn(at, func(v *V) T {
		if v == nil {
			return usual
		}
		return from(*v)
	}, func(t T) *V {
		if t == usual {
			return nil
		}
		return new(to(t))
	})
}

// triggersByID reads the triggers of the batch.
var triggersByID = ` SELECT ` + TriggerRead.Selected("t.") + ` FROM b JOIN triggers AS t ON t.id = b.id
	WHERE (t.deleted_at IS NULL) = b.yes`

// Version returns the declaration of a trigger for the engine.
func (t TriggerRow) Version() dispatcher.TriggerVersion {
	return dispatcher.TriggerVersion{
		ID: t.ID, JobID: t.JobID, Revision: t.Revision, Name: t.Name, Spec: t.Spec("", t.AnchorAt), Calendar: t.Calendar,
		MisfirePolicy: t.MisfirePolicy, CatchUpWindow: t.CatchUpWindow.Std(),
	}
}
