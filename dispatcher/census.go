package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Census counts what there is in an installation, and says what will soon be missing in it. Each count has a limit.
type Census struct {
	Jobs map[JobState]int // not deleted
	// Runs are the live runs: those that wait, and those that have a row of their own for another reason. The fires that nodes
	// hold in their first attempt mostly have none.
	Runs  map[run.State]int
	Nodes map[NodeState]int
	// SetAside counts the rows that work goes on without.
	SetAside map[Work]int
	// Overdue is how many triggers are due for longer than asked for and not claimed. Oldest is when the oldest of them was due;
	// zero: there is none.
	Overdue int
	Oldest  time.Time
	// TokenExpiry is when the first token of the API expires that has not been expired for a day; zero: there is none.
	TokenExpiry time.Time
	// Forgotten are pauses of apps, jobs and triggers that are older than ForgottenAfter and have no end.
	Forgotten int
	// SilentGroups are endpoint groups that enabled jobs call and that have no endpoint for them.
	SilentGroups int
	// CertificateEnd is when the first client certificate ends that enabled jobs and their groups present; zero: there is none.
	CertificateEnd time.Time
	// RetentionBehind is for how long the oldest history should have been gone.
	RetentionBehind time.Duration
	// DaysAhead is how many days after today have partitions for the history; nil: the history has none.
	DaysAhead *int
}

// LiveStates are the states of runs that are not over.
var LiveStates = []run.State{run.Queued, run.Claimed, run.Running, run.Retrying, run.WaitingCallback, run.WaitingShards}

// NodeStates are all states of a node.
var NodeStates = []NodeState{NodeActive, NodePaused, NodeDraining, NodeDead}
