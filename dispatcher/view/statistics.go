package view

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Statistics are what the runs of each UTC day came to, of an app or of all apps together.
type Statistics struct {
	// CountedTo is up to when runs have been counted at least once, by their scheduled time.
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
	// LateMean and LateMost are how late fires began, over Started fires of triggers: those whose first attempt began.
	Started int64 `json:"started"`
	// How late these began.
	LateMean input.Duration `json:"late_mean"`
	// How late the latest of them began.
	LateMost input.Duration `json:"late_most"`
	// Final says that the day was counted again after all of it had ended. Until then, runs that take long are not in it.
	Final bool `json:"final"`
}

// StatisticsQuery selects days.
type StatisticsQuery struct {
	// Apps are those that count; nil: all.
	Apps []string
	// From and To select the days that contain them and those between; zero: To is now, and From 30 days before To.
	From, To time.Time
	Now      time.Time
}

// StatisticsKept is how long statistics by day are kept.
const StatisticsKept = 400 * 24 * time.Hour

// StatisticsRolled is what one call of RollUpStatistics did.
type StatisticsRolled struct {
	Portions int  // of the ledger, that were counted
	More     bool // the next call goes on
}

// RunStatistics count the runs of each day.
type RunStatistics interface {
	// RollUpStatistics counts a portion of the ledger, from where the call before left off, in one transaction with its cursor:
	// each portion once soon after its time, and once for good when what it holds has ended. It begins with the day of the first
	// call. It notes which run of each app failed last, too: Attention finds by it the failures of an app that those of others
	// would hide. The handler calls it until there is no more.
	RollUpStatistics(ctx context.Context, now time.Time) (StatisticsRolled, error)
	// Statistics returns the days of a query that have any run or misfire, in order.
	Statistics(ctx context.Context, query StatisticsQuery) (Statistics, error)
}
