package lambda

import (
	"context"
	"encoding/json"
	"fmt"
)

// WithState returns what a handler returns to leave a state to the next run of its job, which has carry_state. The state is any
// value whose JSON has at most 4 KiB; nil clears it. The result, if it is not nil, is a value whose JSON is an object: its
// members stand next to the state.
func WithState(result, state any) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if result != nil {
		text, err := json.Marshal(result)
		if err == nil {
			err = json.Unmarshal(text, &members)
		}
		if err != nil || members == nil {
			return nil, fmt.Errorf("a result with a state has to be an object in JSON: %w", err)
		}
	}
	text, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	members["carillon"] = json.RawMessage(`{"state":` + string(text) + `}`)
	return json.Marshal(members)
}

// CompleteWithState is Complete, and leaves a state to the next run of the job, as WithState does.
func (c Callback) CompleteWithState(ctx context.Context, message string, state any) error {
	return c.post(ctx, "complete", map[string]any{"message": cut(message), "state": state}, mostTries)
}
