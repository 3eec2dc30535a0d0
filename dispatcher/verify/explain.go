package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Explanation is the outcome of one scheduled time of a trigger, and the reason.
type Explanation struct {
	App     string    `json:"app"`
	Job     string    `json:"job"`
	Trigger string    `json:"trigger"`
	At      time.Time `json:"at"`
	Verdict Verdict   `json:"verdict"`
	// Reason is the verdict in words.
	Reason string `json:"reason"`
	// Revision is the job's revision in force at the time, 0 if there was none.
	Revision int64 `json:"revision,omitempty"`
	// DueAt is when the fire was or is due, nil if the schedule does not fire at At. NextAt is the next fire after At
	// by the schedule in force, or nil.
	DueAt *time.Time `json:"due_at,omitempty"`
	// The next fire after it by the schedule that was in force.
	NextAt *time.Time `json:"next_at,omitempty"`
	// Steps are the decisions that led to the verdict, oldest first.
	Steps []Step `json:"steps"`
	// Run executes the fire. Misfire is the decision about a missed fire, and CatchUp the run that
	// stands for it, if there is one.
	Run *run.Run `json:"run,omitempty"`
	// The misfire decision that covers this fire.
	Misfire *dispatcher.Misfire `json:"misfire,omitempty"`
	// The catch-up run of that decision.
	CatchUp *run.Run `json:"catch_up,omitempty"`
}

// Step is one decision on the way to a verdict.
type Step struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// Verdict is the outcome of a scheduled time.
type Verdict string

// The verdicts.
const (
	VerdictRun     Verdict = "run"     // it has a run
	VerdictMisfire Verdict = "misfire" // a misfire decision covers it
	VerdictOpen    Verdict = "open"    // it is due and not yet claimed or settled
	VerdictPlanned Verdict = "planned" // it is in the future
	VerdictNone    Verdict = "none"    // it was never scheduled
	VerdictUnknown Verdict = "unknown" // the history does not reach back so far, or cannot be evaluated
	VerdictMissing Verdict = "missing" // it was scheduled, but is missing in the ledger
)

// ExplainQuery names the time of a trigger to explain.
type ExplainQuery struct {
	App, Job, Trigger string
	At, Now           time.Time
}

// Explain explains a time of a trigger. The error is ErrNotFound if the trigger has no history.
func Explain(ctx context.Context, reader Reader, query ExplainQuery) (Explanation, error) {
	at := query.At.UTC().Truncate(time.Millisecond)
	of, err := readHistory(ctx, reader, query, at, input.Later(at.Add(-time.Minute), time.UnixMilli(0)))
	if err != nil {
		return Explanation{App: query.App, Job: query.Job, Trigger: query.Trigger, At: at, Steps: []Step{}}, err
	}
	of.ledger = oneByOne{reader, query}
	e, err := of.explain(ctx, at)
	if err == nil && e.Verdict == VerdictNone && at.Nanosecond() == 0 {
		// People copy times without milliseconds, as most lists show them.
		near, found, err := of.within(ctx, reader, at, e.NextAt)
		if found {
			e, err = of.explain(ctx, near)
		}
		return e.Explanation, err
	}
	return e.Explanation, err
}

// within returns the scheduled time of the trigger in the second that begins at a time; next is the next by the schedule.
func (of *explained) within(ctx context.Context, reader Reader, at time.Time, next *time.Time) (near time.Time, found bool, err error) {
	last := at.Add(time.Second - time.Millisecond)
	fires, err := reader.LatestFires(ctx, of.job, of.history.ID, at, last, 1)
	if len(fires) > 0 {
		return fires[0], true, nil
	}
	if err == nil && next != nil && !next.After(last) {
		return *next, true, nil
	}
	return near, false, err
}

// explained is a trigger of which times are explained.
type explained struct {
	query     ExplainQuery
	schedules *knownSchedules
	job       int64 // its key
	history   dispatcher.TriggerHistory
	app       dispatcher.AppHistory
	ledger    ledger
}

// ledger is the part of a trigger's ledger that explanations read.
type ledger interface {
	// find returns a run, or nil.
	find(ctx context.Context, key run.Key) (*run.Run, error)
	// missed returns the misfire decision that covers a time, or nil.
	missed(ctx context.Context, at time.Time) (*dispatcher.Misfire, error)
	// held returns the reason of a decision with what held its fires.
	held(ctx context.Context, m *dispatcher.Misfire) (string, error)
}

// readHistory reads the history of a trigger since a time; zero means all that the app has. It is read before the
// ledger: a fire that is claimed in between is found there.
func readHistory(ctx context.Context, reader Reader, query ExplainQuery, at, since time.Time) (of explained, err error) {
	of = explained{query: query, schedules: &knownSchedules{
		dispatcher.NewPastSchedules(reader, query.App), map[*dispatcher.TriggerRevision]*schedule.Schedule{},
	}}
	if of.app, err = reader.AppHistory(ctx, query.App, at, query.Now); err != nil {
		return of, err
	}
	if of.job, err = reader.JobKey(ctx, query.App, query.Job); err != nil {
		return of, err
	}
	if since.IsZero() {
		since = of.app.Since
	}
	histories, err := reader.TriggerHistories(ctx, since, []int64{of.job})
	if err != nil {
		return of, err
	}
	i := slices.IndexFunc(histories, func(h dispatcher.TriggerHistory) bool { return h.Name == query.Trigger })
	if i < 0 {
		return of, dispatcher.NotFound("trigger", query.App+"/"+query.Job+"/"+query.Trigger)
	}
	of.history = histories[i]
	return of, nil
}

func (of *explained) explain(ctx context.Context, at time.Time) (explainer, error) {
	e := explainer{explained: of, Explanation: Explanation{
		App: of.query.App, Job: of.query.Job, Trigger: of.query.Trigger, At: at, Steps: []Step{},
	}}
	return e, e.run(ctx)
}

// explainer explains one time.
type explainer struct {
	Explanation
	*explained
	pauses  []dispatcher.AppPause // of the app that held the job at the time or later
	holds   holds
	delayed bool // a fixed delay is not known to have led to the time
	// excluded is true if only the calendar keeps the schedule from firing then.
	excluded bool
}

// run decides what became of the time, and collects the steps that led to it.
func (e *explainer) run(ctx context.Context) (err error) {
	defer func() { slices.SortStableFunc(e.Steps, func(a, b Step) int { return a.At.Compare(b.At) }) }()
	key := run.Key{TriggerID: e.history.ID, ScheduledAt: e.At, Kind: run.KindSchedule}
	if e.Run, err = e.ledger.find(ctx, key); err != nil {
		return err
	}
	scheduled, err := e.schedule(ctx)
	if err != nil {
		return err
	}
	if scheduled != nil {
		e.addHolds()
	}
	if e.Run != nil {
		e.decide(VerdictRun, "its run %s", progress(e.Run))
		if held, was := e.holds.during(e.At, e.At); was && held.delayed(e.Run) {
			e.Reason += "; " + held.String()
		}
		e.addRun(e.Run)
		return nil
	}
	if scheduled == nil {
		return nil
	}
	if err := e.findMisfire(ctx); err != nil || e.Misfire != nil {
		return err
	}
	if e.delayed {
		e.undelayed()
		return nil
	}
	e.unclaimed(scheduled)
	return nil
}

// undelayed decides about a time of a fixed delay that has neither a run nor a misfire decision.
func (e *explainer) undelayed() {
	e.decide(VerdictNone, "a fixed delay counts from the end of each run, and no run led to this time")
}

// oneByOne reads each run and decision from a store.
type oneByOne struct {
	reader Reader
	query  ExplainQuery
}

func (l oneByOne) find(ctx context.Context, key run.Key) (*run.Run, error) {
	run, err := l.reader.Run(ctx, key.String())
	if errors.Is(err, dispatcher.ErrNotFound) {
		return nil, nil
	}
	return &run, err
}

func (l oneByOne) missed(ctx context.Context, at time.Time) (*dispatcher.Misfire, error) {
	found, err := l.reader.Misfires(ctx, dispatcher.RunQuery{
		App: l.query.App, Job: l.query.Job, Trigger: l.query.Trigger, From: at, To: at, Page: input.Page{Limit: 20},
	})
	return shortest(found, at), err
}

func (l oneByOne) held(ctx context.Context, m *dispatcher.Misfire) (string, error) {
	one := []dispatcher.Misfire{*m}
	err := AddHolds(ctx, l.reader, one)
	return one[0].Reason, err
}

// shortest returns the misfire decision that covers a time, or nil: the shortest, because a longer one may span times that
// it does not count.
func shortest(all []dispatcher.Misfire, at time.Time) (found *dispatcher.Misfire) {
	for i, m := range all {
		if !at.Before(m.From) && !at.After(m.To) && (found == nil || m.To.Sub(m.From) < found.To.Sub(found.From)) {
			found = &all[i]
		}
	}
	return found
}

func (e *explainer) decide(verdict Verdict, format string, args ...any) {
	e.Verdict, e.Reason = verdict, fmt.Sprintf(format, args...)
}

func (e *explainer) step(at time.Time, format string, args ...any) {
	e.Steps = append(e.Steps, Step{at, fmt.Sprintf(format, args...)})
}

// findMisfire looks for the misfire decision that covers the time.
func (e *explainer) findMisfire(ctx context.Context) error {
	m, err := e.ledger.missed(ctx, e.At)
	if err != nil || m == nil {
		return err
	}
	e.Misfire = m
	why := e.holds.reasonOf(m, e.At, e.At)
	if why == m.Reason { // fires missed together have one decision
		if why, err = e.ledger.held(ctx, m); err != nil {
			return err
		}
	}
	e.decide(VerdictMisfire, "it was missed, and the misfire decision was %s: %s", m.Decision, why)
	for i := range e.history.Revisions {
		if r := &e.history.Revisions[i]; r.From.After(e.At) && !r.From.After(m.DecidedAt) && r.Revision != e.Revision {
			e.declared(r)
		}
	}
	by := "a change of the definition"
	if m.Node != nil {
		by = "node " + m.Node.String()
	}
	e.step(m.DecidedAt, "%s settled %d missed fires from %s to %s: %s, %s",
		by, m.Count, input.FormatInstant(m.From), input.FormatInstant(m.To), m.Decision, m.Reason)
	if m.Run == "" {
		return nil
	}
	key, err := run.ParseKey(m.Run)
	if err != nil {
		return err
	}
	if e.CatchUp, err = e.ledger.find(ctx, key); err == nil && e.CatchUp != nil {
		e.addRun(e.CatchUp)
	}
	return err
}

// unclaimed decides about a scheduled time with neither a run nor a misfire decision.
func (e *explainer) unclaimed(span *dispatcher.Span) {
	waits := e.waits()
	switch {
	case e.At.Before(e.app.Since):
		e.beforeHistory()
	case span.Open.IsZero() || e.At.Before(span.Open):
		e.decide(VerdictMissing, "it was scheduled, but the ledger has neither a run nor a misfire decision")
	case e.history.Error != "":
		e.decide(VerdictOpen, "the trigger is in quarantine: %s", e.history.Error)
	case e.At.After(e.app.Now) && waits != "":
		e.decide(VerdictPlanned, "%s", waits)
	case e.At.After(e.app.Now):
		e.decide(VerdictPlanned, "it is in the future")
	case waits != "":
		e.decide(VerdictOpen, "it is due, but %s", waits)
	default:
		e.decide(VerdictOpen, "it is due and not yet claimed or settled")
	}
}

func (e *explainer) addRun(run *run.Run) {
	claimed := func(attempt int) {
		if run.ClaimedAt != nil && run.Node != nil && attempt == run.Attempt {
			e.step(*run.ClaimedAt, "claimed by node %s as attempt %d", *run.Node, run.Attempt)
		}
	}
	listed := 0
	for _, a := range run.Attempts {
		listed = a.Attempt
		claimed(a.Attempt)
		outcome := string(a.State)
		if a.Error != "" {
			outcome += ": " + a.Error
		}
		e.step(a.StartedAt, "attempt %d by node %s", a.Attempt, a.Node)
		e.step(a.EndedAt, "attempt %d ended: %s", a.Attempt, outcome)
		if a.Late != nil {
			e.step(a.Late.EndedAt, "its result came late: %s", a.Late.State)
		}
	}
	if listed < run.Attempt {
		claimed(run.Attempt)
	}
	e.addShards(run)
	if run.EndedAt == nil {
		return
	}
	for _, one := range run.FollowedBy {
		e.step(*run.EndedAt, "%s is followed by run %s of %s/%s, %s", one.On, one.Run, one.App, one.Job, one.State)
	}
}

// addShards adds the steps of a broadcast, which has no attempts of its own.
func (e *explainer) addShards(run *run.Run) {
	if run.Shards == nil {
		return
	}
	if run.StartedAt != nil {
		e.step(*run.StartedAt, "spread over %d endpoints, a shard each", run.Shards.Total)
	}
	if run.EndedAt != nil {
		why := ""
		if run.Error != "" {
			why = "; " + run.Error
		}
		e.step(*run.EndedAt, "%d of %d shards succeeded%s", run.Shards.Succeeded, run.Shards.Total, why)
	}
}

// progress describes how far a run has come.
func progress(r *run.Run) string {
	waiting := r.Waiting()
	switch {
	case waiting != "" && r.Error != "":
		return waiting + " (" + r.Error + ")"
	case waiting != "":
		return waiting
	case r.EndedAt == nil && r.Error != "":
		return "is " + string(r.State) + " (" + r.Error + ")"
	case r.EndedAt == nil:
		return "is " + string(r.State)
	case r.State == run.Skipped && r.Error != "":
		return "was skipped: " + r.Error
	case r.State == run.Superseded:
		return fmt.Sprintf("ended as superseded at attempt %d: a newer fire of the trigger had been done (%s)", r.Attempt, r.Error)
	}
	text := fmt.Sprintf("ended as %s at attempt %d", r.State, r.Attempt)
	if waited := r.HasWaited(); waited != "" {
		text += "; it waited " + waited
	}
	return text
}
