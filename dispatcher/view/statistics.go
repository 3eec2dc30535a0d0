package view

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Statistics count the runs of each UTC day, for an app or for all apps together.
type Statistics struct {
	// CountedTo is the scheduled time up to which runs have been counted at least once.
	CountedTo time.Time `json:"counted_to"`
	// Days are in order; a day without runs and misfires is left out.
	Days []DayStatistics `json:"days"`
}

// DayStatistics are the runs of one UTC day. A run counts on the day of its scheduled time if it ended within 24 hours, else on
// the day of its end. Shards and deliveries of alerts and events do not count.
type DayStatistics struct {
	// Day is 2006-01-02.
	Day string `json:"day"`
	// Runs counts the runs that have ended, by state.
	Runs map[run.State]int64 `json:"runs"`
	// Attempts counts all attempts of these runs.
	Attempts int64 `json:"attempts"`
	// Misfires counts the scheduled times that were missed.
	Misfires int64 `json:"misfires"`
	// LateMean and LateMost are how late fires began, over Started fires of triggers: fires with a first attempt that did
	// not wait as their job asked.
	Started int64 `json:"started"`
	// How late these began.
	LateMean input.Duration `json:"late_mean"`
	// How late the latest of them began.
	LateMost input.Duration `json:"late_most"`
	// Final is true if the day was counted again after all its runs had ended. Until then, long runs are missing.
	Final bool `json:"final"`
}

// JobStatistics are about the latest ended runs of a job between two times, at most MostExaminedRuns. Shards do not count.
type JobStatistics struct {
	// From and To are the times between which runs and misfires count. From is later than asked for if there are more.
	From time.Time `json:"from"`
	// End of the time, inclusive.
	To time.Time `json:"to"`
	// Waits are how long after its scheduled time the first attempt of a fire began, for whatever reason.
	Waits Percentiles `json:"waits"`
	// Durations are how long the latest attempts took.
	Durations Percentiles `json:"durations"`
	// Hours are in order; one without runs and misfires is left out.
	Hours []HourStatistics `json:"hours"`
}

// MostExaminedRuns bounds the runs that JobStatistics examines, because no counts of single jobs are kept.
const MostExaminedRuns = 10_000

// Percentiles describe lengths of time: P95 is the least that 95 % of them do not exceed.
type Percentiles struct {
	// How many there are.
	Count int            `json:"count"`
	P50   input.Duration `json:"p50"`
	P95   input.Duration `json:"p95"`
	P99   input.Duration `json:"p99"`
	Max   input.Duration `json:"max"`
}

// PercentilesOf sorts lengths of time, and returns their percentiles.
func PercentilesOf(all []input.Duration) Percentiles {
	if len(all) == 0 {
		return Percentiles{}
	}
	slices.Sort(all)
	of := func(percent int) input.Duration { return all[(len(all)*percent+99)/100-1] }
	return Percentiles{Count: len(all), P50: of(50), P95: of(95), P99: of(99), Max: of(100)}
}

// HourStatistics are the runs of a job that were scheduled in the hour from At on, and the fires that it missed.
type HourStatistics struct {
	At time.Time `json:"at"`
	// Runs counts the runs that have ended, by state.
	Runs map[run.State]int64 `json:"runs"`
	// Scheduled times that were missed.
	Misfires int64 `json:"misfires"`
}

// StatisticsQuery selects days.
type StatisticsQuery struct {
	// Apps are the counted apps; nil means all.
	Apps []string
	// From and To select their days and those between; zero: To is now, and From is 30 days before To.
	From, To time.Time
	Now      time.Time
}

// StatisticsKept is how long statistics by day are kept.
const StatisticsKept = 400 * 24 * time.Hour

// StatisticsRolled is the result of one call of RollUpStatistics.
type StatisticsRolled struct {
	Portions int  // counted portions of the ledger
	More     bool // the next call goes on with the rest
}

// RunStatistics count the runs of each day.
type RunStatistics interface {
	// RollUpStatistics counts a portion of the ledger, from where the previous call left off, in one transaction with
	// its cursor: each portion once soon after its time, and finally when its runs have ended. It begins with the day
	// of the first call. It also stores which run of each app failed last, so that Attention finds failures of an app
	// that those of others would hide. The handler calls it until all is counted.
	RollUpStatistics(ctx context.Context, now time.Time) (StatisticsRolled, error)
	// Statistics returns the days of a query that have any run or misfire, in order.
	Statistics(ctx context.Context, query StatisticsQuery) (Statistics, error)
}

// Overview has views over many jobs, or all. Each method sends a fixed number of statements for each named app,
// independent of the sizes of apps and of the history, and none reads through the history.
type Overview interface {
	// JobSummaries lists jobs by app and name. next is the cursor of the following page, empty after the last. A page may have
	// fewer summaries than its limit, or none, and still a next one: a call looks at some thousand jobs at most.
	JobSummaries(ctx context.Context, query dispatcher.JobQuery) (summaries []dispatcher.JobSummary, next string, err error)
	// HealthOfJobs returns the health of the first jobs, by app and name, and how many more there are, at most
	// 100,000 of each app. An empty apps means all.
	HealthOfJobs(ctx context.Context, apps []string, most int, now time.Time) (jobs []dispatcher.JobHealth, more int, err error)
	// Attention returns the problems of some apps; empty means all, with nodes and rollbacks.
	Attention(ctx context.Context, apps []string, now time.Time) (Attention, error)
	// UpcomingTriggers lists triggers that are due before until, in the order of their ids, after an id. It leaves
	// out triggers that do not fire, such as paused ones.
	UpcomingTriggers(ctx context.Context, apps []string, until time.Time, after int64, limit int) ([]UpcomingTrigger, error)
}

// UpcomingTrigger is a trigger that is due.
type UpcomingTrigger struct {
	ID            int64
	App, Identity string // Identity is that of Job.Identity
	Trigger       dispatcher.Trigger
}
