package verify

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// hold is a time in which no fire of a trigger was claimed; zero: none.
type hold struct {
	what, actor, reason string
	from                time.Time
	until, ends         *time.Time // until when it lasted, nil if it lasts, and when it ends by itself
	outage              bool       // of the database
}

// String says what held fires, by whom, when and why.
func (h hold) String() string {
	text := h.what
	if h.actor != "" {
		text += " by " + h.actor
	}
	switch {
	case h.until != nil:
		text += " from " + input.FormatInstant(h.from) + " to " + input.FormatInstant(*h.until)
	case h.ends != nil:
		text += " since " + input.FormatInstant(h.from) + ", until " + input.FormatInstant(*h.ends)
	default:
		text += " since " + input.FormatInstant(h.from)
	}
	if h.reason != "" {
		text += ": " + input.Echo(h.reason)
	}
	return text
}

// reasonOf adds to the reason of a misfire decision what held its fires from the first to the last. What held the first is
// the cause, since the others are settled with it; an outage is none of what an operator decides.
func (all holds) reasonOf(m *dispatcher.Misfire, first, last time.Time) string {
	held, is := all.during(first, first)
	if is && (m.Node != nil || !held.outage) {
		return held.String() + "; " + m.Reason
	}
	if held, is = all.during(first, last); is {
		return m.Reason + "; meanwhile, " + held.String()
	}
	return m.Reason
}

// delayed reports whether a run began after the hold, as far as its attempts show.
func (h hold) delayed(r *run.Run) bool {
	began := r.Began()
	return h.until != nil && began != nil && !began.Before(*h.until)
}

// holds are the pauses of a trigger and its job, the latest first, those of its app, the times in which the app was off, and
// outages of the database.
type holds []hold

func holdsOf(history *dispatcher.TriggerHistory, app *dispatcher.AppHistory, pauses []dispatcher.AppPause) (all holds) {
	lasting := 0 // pauses without an end, the last of all
	for i := range history.Revisions {
		r := &history.Revisions[i]
		from := cmp.Or(r.PausedAt, &r.From) // the pause may have begun in an earlier revision
		switch {
		case r.Paused && (lasting == 0 || !all[len(all)-1].from.Equal(*from)):
			all = append(all, hold{what: "the trigger or its job is paused", actor: r.PausedBy, reason: r.PauseReason, from: *from,
				ends: r.PausedUntil})
			lasting++
		case !r.Paused:
			for ; lasting > 0; lasting-- {
				all[len(all)-lasting].what, all[len(all)-lasting].until = "the trigger or its job was paused", &r.From
			}
		}
	}
	slices.Reverse(all)
	for _, p := range pauses {
		what := map[bool]string{true: p.What() + " are paused", false: p.What() + " were paused"}[p.EndedAt == nil]
		all = append(all, hold{what: what, actor: p.PausedBy, reason: p.Reason, from: p.PausedAt, until: p.EndedAt, ends: p.Until})
	}
	on := true
	for _, s := range app.Switches {
		if !s.Enabled && on {
			all = append(all, hold{what: "the app is disabled or suspended", actor: s.Actor, from: s.At})
		} else if s.Enabled && !on {
			all[len(all)-1].what, all[len(all)-1].until = "the app was disabled or suspended", &s.At
		}
		on = s.Enabled
	}
	for _, o := range app.Outages {
		all = append(all, hold{what: o.Who() + " could not reach the database", from: o.From, until: &o.To, outage: true})
	}
	return all
}

// during returns the first of the holds that lasted at some time between two, both inclusive.
func (all holds) during(from, to time.Time) (hold, bool) {
	for _, h := range all {
		if over := cmp.Or(h.until, h.ends); !h.from.After(to) && (over == nil || over.After(from)) {
			return h, true
		}
	}
	return hold{}, false
}

// AddHolds adds to the reasons of misfires what held their fires, by whom, from when to when and why.
func AddHolds(ctx context.Context, reader dispatcher.Revisions, misfires []dispatcher.Misfire) error {
	if len(misfires) == 0 {
		return nil
	}
	since := slices.MinFunc(misfires, func(a, b dispatcher.Misfire) int { return a.From.Compare(b.From) }).From
	jobs, apps := make([]int64, len(misfires)), make([]string, len(misfires))
	for i, m := range misfires {
		jobs[i], apps[i] = m.JobID, m.App
	}
	slices.Sort(jobs)
	slices.Sort(apps)
	histories, err := reader.TriggerHistories(ctx, since, slices.Compact(jobs))
	if err != nil {
		return err
	}
	holds, err := reader.AppHolds(ctx, since, slices.Compact(apps))
	if err != nil {
		return err
	}
	for i := range misfires {
		m := &misfires[i]
		if of := slices.IndexFunc(histories, func(h dispatcher.TriggerHistory) bool { return h.ID == m.TriggerID }); of >= 0 {
			m.Reason = heldReason(&histories[of], holds[m.App], m)
		}
	}
	return nil
}

// heldReason returns the reason of a misfire with what held its fires.
func heldReason(history *dispatcher.TriggerHistory, app *dispatcher.AppHistory, m *dispatcher.Misfire) string {
	var pauses []dispatcher.AppPause
	if in, _ := history.At(m.From); in != nil {
		pauses = dispatcher.HeldBy(app.Pauses, in.Labels)
	}
	return holdsOf(history, app, pauses).reasonOf(m, m.From, m.To)
}

// addHolds adds the steps of what held the trigger at the time, apart from changes of its definition.
func (e *explainer) addHolds() {
	for _, p := range e.pauses {
		if p.PausedAt.After(e.At) || p.EndedAt != nil && !p.EndedAt.After(e.At) {
			continue
		}
		e.step(p.PausedAt, "pause %s began: %s", p.ID, p)
		if p.EndedAt != nil {
			e.step(*p.EndedAt, "pause %s was ended by %s", p.ID, p.EndedBy)
		}
	}
	for _, o := range e.app.Outages {
		if !o.From.After(e.At) && o.To.After(e.At) {
			e.step(o.From, "%s lost the database", o.Who())
			e.step(o.To, "%s reached the database again", o.Who())
		}
	}
}

// waits says what keeps the fire from being claimed, now or when it is due; empty: nothing does.
func (e *explainer) waits() string {
	at := input.Later(e.At, e.app.Now)
	held, is := e.holds.during(at, at)
	switch {
	case e.app.Suspended != "":
		return e.app.Suspended
	case e.app.DisabledNow:
		return "the app is disabled"
	case is && held.until == nil:
		return held.String()
	}
	return ""
}
