package dispatcher

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// FollowDocument is what a follower gets of the run that it follows: the payload of a Follow's Target, and of its Jobs with
// FollowResult.
type FollowDocument struct {
	Event  run.FollowEvent `json:"event"`
	Parent FollowedRun     `json:"parent"`
	// Result is the body of the response to the latest attempt, or the message of its callback: as JSON if it is JSON nested
	// less deep than payloads may be, else as a text. It is left out if nothing is stored of it.
	Result json.RawMessage `json:"result,omitempty"`
	// ResultTruncated tells that only the beginning of the result is there.
	ResultTruncated bool `json:"result_truncated,omitempty"`
	// ResultOmitted says why the result is left out although there may be one; empty: it is not.
	ResultOmitted string `json:"result_omitted,omitempty"`
}

// FollowedRun is a run that ended, or the fires that were missed, as followers see it.
type FollowedRun struct {
	// Run is the id of the run. Of missed fires it is that of the catch-up run, empty if there is none.
	Run     string `json:"run,omitempty"`
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger,omitempty"`
	// ScheduledAt is that of the run, or of the first missed fire.
	ScheduledAt time.Time `json:"scheduled_at"`
	State       run.State `json:"state,omitempty"`
	Class       run.Class `json:"class,omitempty"`
	Error       string    `json:"error,omitempty"`
	HTTPStatus  int       `json:"http_status,omitempty"`
	Attempts    int       `json:"attempts,omitempty"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
	// Missed, Decision and Reason are set for missed fires only.
	Missed   *run.MissedRange `json:"missed,omitempty"`
	Decision Decision         `json:"decision,omitempty"`
	Reason   string           `json:"reason,omitempty"`
}

// Encode returns d as JSON, of at most MaxPayload bytes, with the result that a response holds; nil: nothing is stored.
func (d FollowDocument) Encode(response *run.Response) (json.RawMessage, error) {
	if response != nil {
		text := response.Body
		if response.CallbackResult != "" {
			text = response.CallbackResult
		}
		d.ResultTruncated = response.BodyTruncated && text == response.Body
		const room = input.MaxPayload - 16<<10 // for all but the result
		switch raw := json.RawMessage(text); {
		case text == "":
		case !d.ResultTruncated && json.Valid(raw) && input.JSONDepth(raw) < input.MaxPayloadDepth-1 && input.CheckJSONText(raw, 1) == nil:
			d.Result = raw
		default:
			var cut bool
			if d.Result, cut = jsonText(text, room); cut {
				d.ResultTruncated = true
			}
		}
	}
	return json.Marshal(d)
}

// jsonText returns a text, or as much of its beginning as has no more than most bytes as JSON.
func jsonText(text string, most int) (encoded json.RawMessage, cut bool) {
	for {
		encoded, _ = json.Marshal(text) // a string always marshals
		if len(encoded) <= most {
			return encoded, cut
		}
		keep := len(text) * most / len(encoded)
		for keep > 0 && !utf8.RuneStart(text[keep]) {
			keep--
		}
		text, cut = text[:keep], true
	}
}
