package main

import "time"

// pace is how fast nodes react, and so how fast faults follow each other.
type pace struct {
	settings []string // of the nodes
	// deadAfter and drain are the nodes' settings. recovery is the longest time until the runs of a
	// dead node continue, if another node lives: dead-after, handler and window.
	deadAfter, drain, recovery time.Duration
	frozen                     span          // longer than deadAfter
	rest                       span          // between the death of a node and its next start
	life                       time.Duration // longest wait for a node's failpoint
	seldom                     int           // largest visit number for points that a node passes rarely
	// settle is how long a run continues after the last fault: recovery, the end of all
	// definitions, and the end of the runs in flight.
	settle time.Duration
}

// span is the range of a random duration.
type span struct{ least, most time.Duration }

// draw returns a random duration in a span.
func (c *chaos) draw(s span) time.Duration { return c.between(s.least, s.most) }

// quick is the pace of most runs: poll window 0.2 s, handler 0.5 s, dead after 2 s.
func quick() pace {
	return pace{
		settings: []string{
			"--poll-window=200ms", "--handler-interval=500ms", "--heartbeat=400ms", "--dead-after=2s", "--share-grace=200ms",
			"--drain-timeout=3s", "--workers=128", "--queue=512",
		},
		deadAfter: 2 * time.Second, drain: 3 * time.Second, recovery: 2700 * time.Millisecond,
		frozen: span{2500 * time.Millisecond, 4 * time.Second}, rest: span{50 * time.Millisecond, 800 * time.Millisecond},
		life: 5 * time.Second, seldom: 12, settle: 12 * time.Second,
	}
}

// production is the pace of nodes with default settings: poll window 5 s, handler 15 s, dead after 60 s.
func production() pace {
	return pace{
		deadAfter: time.Minute, drain: 25 * time.Second, recovery: 80 * time.Second,
		frozen: span{65 * time.Second, 80 * time.Second}, rest: span{time.Second, 20 * time.Second},
		life: 40 * time.Second, seldom: 1, settle: 130 * time.Second,
	}
}
