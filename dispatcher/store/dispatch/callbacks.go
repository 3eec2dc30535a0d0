package dispatch

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// CallbackNote is the content of live_runs.callback: the state of an attempt accepted by its target. If the target
// reports a failure before the node has recorded the acceptance, Started is 0.
type CallbackNote struct {
	Started   int64  `json:"started,omitempty"`
	Status    int    `json:"status,omitempty"`
	Within    int64  `json:"within,omitempty"` // milliseconds
	Group     string `json:"group,omitempty"`
	Heartbeat *int64 `json:"heartbeat,omitempty"`
	Progress  string `json:"progress,omitempty"`
	Percent   *int   `json:"percent,omitempty"`
	Failed    bool   `json:"failed,omitempty"`
	TimedOut  bool   `json:"timed_out,omitempty"` // of what failed
	Message   string `json:"message,omitempty"`
	// State is the revision of the carried state given to the attempt; nil: its job carries no state.
	State *int64 `json:"state,omitempty"`
}

// Column returns the text of a note for its row.
func (n CallbackNote) Column() *string {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // its fields always marshal
	}
	column := Storable(string(text))
	return &column
}

// ReadCallbackNote reads the text of a note from its row.
func ReadCallbackNote(text string) (n CallbackNote, err error) {
	if err = json.Unmarshal([]byte(text), &n); err != nil {
		err = fmt.Errorf("stored callback: %w", err)
	}
	return n, err
}

// acceptedAttempt converts the note of an adopted run for the engine. An attempt with an unreadable note counts as
// failed: the run has been adopted by then, and must continue.
func acceptedAttempt(text string) *run.AcceptedAttempt {
	n, err := ReadCallbackNote(text)
	if err != nil {
		return &run.AcceptedAttempt{Failed: true, Message: "what was stored of the accepted attempt cannot be read: " + err.Error()}
	}
	a := &run.AcceptedAttempt{
		HTTPStatus: n.Status, Failed: n.Failed, TimedOut: n.TimedOut, Message: n.Message, Within: time.Duration(n.Within) * time.Millisecond,
	}
	if n.Started != 0 {
		a.StartedAt = db.Instant(n.Started)
	}
	return a
}

// chooseCompleted chooses runs that their targets complete. If the node has not yet recorded that the target accepted
// the attempt, that record becomes a late result in the row of the attempt.
func chooseCompleted(f db.Flavor) string {
	return `SELECT` + ChosenEnd(End{at: `b.now`, State: `'succeeded'`, Class: `''`, Message: `b.error`}) + `,
		CASE WHEN r.state <> 'waiting_callback' AND r.node > 0 AND r.claimed_at IS NOT NULL THEN 1 ELSE 0 END AS attempted
	FROM b JOIN live_runs AS r ON` + db.Fence(f)
}

const insertCompleted = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
	http_status, state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.of_node, coalesce(c.of_started, c.of_claimed), c.of_end, 0, c.of_state, '', ''
	FROM c WHERE c.attempted = 1 ON CONFLICT DO NOTHING`
