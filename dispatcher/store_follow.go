package dispatcher

import (
	"context"
	"time"
)

// FollowQuery selects pending ends.
type FollowQuery struct {
	// Limit is how many ends one call takes. Ends that were set aside and are tried again may come in addition, as many at most.
	Limit int
	// From is the time before which all ends are left alone; zero: they have no lower bound. Of the apps in After, by their ids, all
	// that ended before the time there are left alone. Ends that were set aside have no lower bound.
	From  time.Time
	After map[int64]time.Time
	Now   time.Time // zero: the database's clock
}

// FollowedEnds is what one call of FollowEnds did.
type FollowedEnds struct {
	Ends   int  // ends and misfires that are dealt with
	Queued int  // runs that were queued
	More   bool // there are more
	// Latest is when the latest of Ends and SetAside ended, by the ids of apps. Those that were tried again do not count.
	Latest map[int64]time.Time
	// SetAside are the ends that could not be followed.
	SetAside []SetAside
}

// Follows are what follows a run. The end of a run of a job with a FollowMask leaves a row among the pending ends, in the
// statement that puts the run into the history; so does each decision about missed fires.
type Follows interface {
	// FollowEnds takes the earliest pending ends of a query, and in one transaction removes them and queues what follows them. If there
	// are more than Limit, the apps take turns: of each app it takes as many as of any other that has as many. If
	// it fails for what one of them holds, each has a transaction of its own, and those that fail again are set aside. Ends that
	// another node takes just now are left to it. What follows was declared by the job as it is now.
	FollowEnds(ctx context.Context, query FollowQuery) (FollowedEnds, error)
}
