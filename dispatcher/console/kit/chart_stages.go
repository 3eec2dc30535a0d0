package kit

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Stage is one part of the life of a run: a wait or an attempt.
type Stage struct {
	// What is the key of the text that names it.
	What string
	// Attempt is the number of the attempt, 0 for waits.
	Attempt  int
	From, To time.Time
	// Open means that it has not ended: To is now, or for a planned wait its planned end.
	Open  bool
	Class string // that of its colour
	// X and Width are its place in the picture.
	X, Width float64
}

// Took returns how long the stage took.
func (s Stage) Took() time.Duration { return s.To.Sub(s.From) }

// Stages of a run, next to those of run.WaitReason. Each is part of the key of a text.
const (
	stageClaim    = "claim"    // from the scheduled time until a node claimed it
	stageStart    = "start"    // from the claim until the attempt began: held until due, for a slot, a worker or a rate
	stageFirst    = "first"    // from the scheduled time until the first attempt, of a run whose first claim is no longer known
	stageAttempt  = "attempt"  // an attempt
	stageRetry    = "retry"    // between attempts
	stageCallback = "callback" // an attempt that the target accepted and has not ended
	stageQueue    = "queue"    // from the scheduled time or the latest attempt until now, with no node
	stageClaimed  = "claimed"  // as queue, with a node, which has not said whether it waits there or is attempted
	stageShards   = "shards"   // a broadcast, from its start until its last shard ended
)

// Sizes of the picture of stages.
const (
	stagesWidth = 960
	leastStage  = 14 // a short stage is visible
)

// Stages returns the life of a run until now, in order, with places in a picture.
func Stages(run run.Run, now time.Time) []Stage {
	var found []Stage
	at := run.ScheduledAt
	for _, a := range run.Attempts {
		found = append(found, beforeAttempt(run, a, at)...)
		found = append(found, Stage{
			What: stageAttempt, Attempt: a.Attempt, From: a.StartedAt, To: a.EndedAt, Class: string(a.State),
		})
		at = a.EndedAt
	}
	found = append(found, underWay(run, at, now)...)
	found = slices.DeleteFunc(found, func(s Stage) bool { return s.Class == "wait" && !s.Open && s.Took() == 0 })
	whole := time.Duration(0)
	for _, s := range found {
		whole += s.Took()
	}
	free := float64(max(stagesWidth-len(found)*leastStage, 0))
	x := 0.0
	for i := range found {
		found[i].X, found[i].Width = round(x), leastStage
		if whole > 0 {
			found[i].Width = round(leastStage + free*float64(found[i].Took())/float64(whole))
		}
		x += found[i].Width
	}
	return found
}

// beforeAttempt returns the waits before an attempt, from the end of the stage before, or from the scheduled time: a
// fire is claimed a little before it is due.
func beforeAttempt(run run.Run, a run.Attempt, since time.Time) []Stage {
	before, only := stageRetry, stageRetry
	if a.Attempt <= 1 {
		before, only = stageClaim, stageFirst
		if run.Waited != "" {
			before, only = string(run.Waited), string(run.Waited)
		}
	}
	if a.Attempt != run.Attempt || run.ClaimedAt == nil || run.ClaimedAt.After(a.StartedAt) {
		return []Stage{wait(only, since, a.StartedAt)}
	}
	claimed := since
	if run.ClaimedAt.After(since) {
		claimed = *run.ClaimedAt
	}
	return []Stage{wait(before, since, claimed), wait(stageStart, claimed, a.StartedAt)}
}

// underWay returns the current stages of a run that has not ended, after its finished attempts, and all stages of a
// broadcast, which has no attempt of its own.
func underWay(r run.Run, since, now time.Time) []Stage {
	if r.Shards != nil && r.StartedAt != nil {
		spread := Stage{What: stageShards, From: *r.StartedAt, To: now, Open: r.EndedAt == nil, Class: string(r.State)}
		if r.EndedAt != nil {
			spread.To = *r.EndedAt
		}
		return append(beforeAttempt(r, run.Attempt{Attempt: r.Attempt, StartedAt: spread.From}, since), spread)
	}
	if slices.Contains(FinalStates(), r.State) {
		return nil
	}
	open := func(what string, attempt int, from, to time.Time, class string) Stage {
		if to.Before(from) {
			to = from
		}
		return Stage{What: what, Attempt: attempt, From: from, To: to, Open: true, Class: class}
	}
	var found []Stage
	switch {
	case r.State == run.Retrying && r.NextAttemptAt != nil:
		return append(found, open(waitOf(r), 0, since, *r.NextAttemptAt, "wait"))
	case r.StartedAt != nil && !r.StartedAt.Before(since) && r.State != run.Retrying:
		found = append(found, beforeAttempt(r, run.Attempt{Attempt: r.Attempt, StartedAt: *r.StartedAt}, since)...)
		what := stageAttempt
		if r.State == run.WaitingCallback {
			what = stageCallback
		}
		return append(found, open(what, r.Attempt, *r.StartedAt, now, string(r.State)))
	}
	return append(found, open(waitOf(r), 0, since, now, "wait"))
}

// waitOf returns the stage of a run that waits.
func waitOf(r run.Run) string {
	switch {
	case r.SlotWait != nil:
		return string(run.WaitSlot)
	case r.WaitsFor != "":
		return string(run.WaitCircuit)
	case r.State == run.Claimed:
		return stageClaimed
	case r.State != run.Retrying || r.NextAttemptAt == nil:
		return stageQueue
	case r.Attempt == 0 && r.Waited != "":
		return string(r.Waited)
	}
	return stageRetry
}

// wait returns a wait. One without a length is not shown.
func wait(what string, from, to time.Time) Stage {
	if to.Before(from) {
		to = from
	}
	return Stage{What: what, From: from, To: to, Class: "wait"}
}

// FinalStates are those in which runs end.
func FinalStates() []run.State {
	return []run.State{
		run.Succeeded, run.Failed, run.TimedOut, run.Lost, run.Cancelled, run.Skipped,
		run.Superseded,
	}
}
