package dispatcher

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// An objective is the share of a job's fires that should begin in time. It is measured afterwards, in the ledger:
// each fire is counted once, in the five minutes and the hour of its scheduled time, when its first attempt is over.
// So it adds no work to a fire.
//
//   - A fire is good if its first attempt began within Objective.Within of its scheduled time. It is late if it began
//     later, or ended without an attempt. How an attempt ended makes no difference.
//   - A fire that began later because it waited as the job asked, for a slot or for its host, does not count.
//   - A missed fire is bad, even if its misfire_policy runs it later. A range of missed fires counts at its last time.
//   - A fire that was skipped because of concurrency_policy, or cancelled before its first attempt, does not count. Nor do
//     manual runs, catch-ups, chains, backfills and shards.

// Objective is the share of a job's fires that should begin in time.
type Objective struct {
	// Within is how late a fire may begin and still be in time: 1ms to 24h, and longer than any jitter.
	Within input.Duration `json:"within" schema:"required"`
	// Of is the share of fires that should be in time over ObjectiveWindow, such as "99.9%": from 50% to 99.999%.
	Of string `json:"of" schema:"required"`
}

// ObjectiveWindow is how far back objectives look. Four weeks contain each day of the week equally often.
const ObjectiveWindow = 28 * 24 * time.Hour

// Bounds of objectives.
const (
	minObjectiveWithin = time.Millisecond
	maxObjectiveWithin = 24 * time.Hour
	leastObjective     = 500_000 // of a million
	mostObjective      = 999_990
)

// share returns Of in parts of a million; ok is false if it is not such a percentage.
func (o Objective) share() (parts int64, ok bool) {
	number, percent := strings.CutSuffix(o.Of, "%")
	whole, fraction, _ := strings.Cut(number, ".")
	if !percent || len(whole) == 0 || len(whole) > 3 || len(fraction) > 3 || strings.HasSuffix(number, ".") ||
		strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, false
	}
	parts, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", 4-len(fraction)), 10, 64)
	return parts, err == nil
}

// allowed returns the share of fires that may be bad.
func (o Objective) allowed() float64 {
	parts, _ := o.share()
	return float64(1_000_000-parts) / 1_000_000
}

// checkObjective adds the problems of the objective of j.
func (j JobSpec) checkObjective(problems *input.Problems) {
	if j.Objective == nil {
		return
	}
	const path = "/objective"
	j.Objective.Within.CheckRange(problems, path+"/within", minObjectiveWithin, maxObjectiveWithin)
	if parts, ok := j.Objective.share(); !ok || parts < leastObjective || parts > mostObjective {
		problems.Add(path+"/of", input.CodeObjectiveForm, "of %s is not a percentage from 50%% to 99.999%% with at most three decimals; "+
			"write 99.9%%. An objective of 100%% would leave no budget", input.Echo(j.Objective.Of))
	}
	for _, name := range input.SortedKeys(j.Triggers) {
		if jitter := j.Triggers[name].Jitter; jitter >= j.Objective.Within && jitter > 0 {
			problems.Add(path+"/within", input.CodeObjectiveForm, "within %s is not longer than the jitter of trigger %s, %s, by which fires are "+
				"late on purpose; make it longer", j.Objective.Within, input.Echo(name), jitter)
		}
	}
}

// ObjectiveCounts counts fires.
type ObjectiveCounts struct {
	// Fires with a first attempt that began in time.
	Good int64 `json:"good"`
	// Fires with a first attempt that began later, or without an attempt.
	Late int64 `json:"late"`
	// Fires that were missed.
	Missed int64 `json:"missed"`
}

// Total returns how many fires are counted.
func (c ObjectiveCounts) Total() int64 { return c.Good + c.Late + c.Missed }

// bad returns the share of fires that were not in time; 0 if there were none.
func (c ObjectiveCounts) bad() float64 {
	if c.Total() == 0 {
		return 0
	}
	return float64(c.Late+c.Missed) / float64(c.Total())
}

// ObjectiveStatus is how well a job meets its objective.
type ObjectiveStatus struct {
	App string `json:"app" schema:"Name"`
	Job string `json:"job" schema:"Name"`
	Objective
	// From and To bound the scheduled times of the counted fires: from From on and before To.
	From time.Time `json:"from"`
	// Fires that were scheduled before this time are counted. It is five to ten minutes behind the clock.
	To time.Time `json:"to"`
	ObjectiveCounts
	// Pending counts fires before To that are not measured yet, because their first attempt is not over.
	Pending int64 `json:"pending"`
	// Attained is the share of fires that were in time, in percent; nil if there were none.
	Attained *float64 `json:"attained"`
	// BudgetLeft is the remaining share of the error budget, in percent: 100 if all fires were in time, 0 if exactly
	// as many were not as Of allows, negative if more were not.
	BudgetLeft float64 `json:"budget_left"`
	// BurnRates show how fast the budget is used up, by how far they look back from To, such as 1h. A rate of 1 uses
	// it up in exactly ObjectiveWindow.
	BurnRates map[string]float64 `json:"burn_rates"`
}

// The times over which burn rates are shown and judged, as in the workbook of Google's SREs.
var objectiveSpans = []struct {
	Name string
	Span time.Duration
}{
	{"5m", 5 * time.Minute}, {"30m", 30 * time.Minute}, {"1h", time.Hour}, {"6h", 6 * time.Hour}, {"3d", 72 * time.Hour},
}

// ObjectiveSpans returns the times over which burn rates are computed, the shortest first.
func ObjectiveSpans() []time.Duration {
	spans := make([]time.Duration, len(objectiveSpans))
	for i, s := range objectiveSpans {
		spans[i] = s.Span
	}
	return spans
}

// ObjectiveMeasured holds the counts of the roll-up for a job.
type ObjectiveMeasured struct {
	From, To time.Time
	Window   ObjectiveCounts
	// Spans are the counts of each of ObjectiveSpans before To.
	Spans   []ObjectiveCounts
	Pending int64
}

// Status returns how well job, which must have an objective, meets it.
func (m ObjectiveMeasured) Status(job Job) ObjectiveStatus {
	s := ObjectiveStatus{
		App: job.App, Job: job.Name, Objective: *job.Objective, From: m.From, To: m.To, ObjectiveCounts: m.Window, Pending: m.Pending,
		BurnRates: map[string]float64{},
	}
	if m.Window.Total() > 0 {
		s.Attained = new(rounded(100 * (1 - m.Window.bad())))
	}
	s.BudgetLeft = rounded(100 * (1 - m.Window.bad()/job.Objective.allowed()))
	for i, counts := range m.Spans {
		s.BurnRates[objectiveSpans[i].Name] = rounded(counts.bad() / job.Objective.allowed())
	}
	return s
}

// rounded returns x rounded to four decimals.
func rounded(x float64) float64 {
	y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 4, 64), 64)
	return y
}

// ObjectiveBurnSpan is the longest time that decides whether a budget burns too fast.
const ObjectiveBurnSpan = 6 * time.Hour

// The burn rates at which an objective is in danger: 14.4 uses up 2 % of the budget within an hour, 6 uses up 5 %
// within six. The shorter time shows whether it still burns, so that an alert ends soon after its cause.
var objectiveAlarms = []struct {
	rate        float64
	long, short string
}{{14.4, "1h", "5m"}, {6, "6h", "30m"}}

// Burns reports whether the budget is used up so fast that somebody should look now, and explains why.
func (s ObjectiveStatus) Burns() (burns bool, why string) {
	for _, a := range objectiveAlarms {
		long, short := s.BurnRates[a.long], s.BurnRates[a.short]
		if long >= a.rate && short >= a.rate {
			return true, fmt.Sprintf("the error budget of %s within %s burns %.1f times as fast as it may, over %s and over %s %.1f times",
				s.Of, s.Within, long, a.long, a.short, short)
		}
	}
	return false, ""
}

// ObjectiveBurn is the state of an error budget, as alerts judge it.
type ObjectiveBurn struct {
	// To is the end of the counted time.
	To time.Time
	// Burns and Why are the results of ObjectiveStatus.Burns.
	Burns bool
	Why   string
	// Unsure is true if the rate is too high over one of the longer times, and no fire in the shorter one shows
	// whether it still is. A job that fires rarely is in this state most of the time after a bad fire.
	Unsure bool
}

// Burn returns the state of the error budget of job. It looks only at the Spans up to ObjectiveBurnSpan.
func (m ObjectiveMeasured) Burn(job Job) ObjectiveBurn {
	status := m.Status(job)
	burn := ObjectiveBurn{To: m.To}
	burn.Burns, burn.Why = status.Burns()
	for _, a := range objectiveAlarms {
		for i, span := range objectiveSpans {
			if span.Name == a.short && m.Spans[i].Total() == 0 && status.BurnRates[a.long] >= a.rate {
				burn.Unsure = true
			}
		}
	}
	return burn
}

// ObjectivesRolled is the result of one call of RollUpObjectives.
type ObjectivesRolled struct {
	Jobs int  // jobs that were looked at
	More bool // the next call goes on with the rest
}

// Objectives measure the objectives of jobs.
type Objectives interface {
	// RollUpObjectives counts fires of at most limit jobs with an objective, from where the previous call left off,
	// in one transaction with its cursors. The handler calls it until all are done.
	RollUpObjectives(ctx context.Context, limit int, now time.Time) (ObjectivesRolled, error)
	// ObjectiveStatus returns how well a job meets its objective. ErrNotFound: the job or its objective does not
	// exist.
	ObjectiveStatus(ctx context.Context, app, job string) (ObjectiveStatus, error)
	// ObjectiveStatuses lists the jobs of an app that have an objective, by name.
	ObjectiveStatuses(ctx context.Context, app string, page input.Page) ([]ObjectiveStatus, error)
}
