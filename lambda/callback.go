package lambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Callback is how a function or worker ends an attempt that it has accepted, and so finishes work that takes longer than a
// request. The zero value means that the job has no callback.
type Callback struct {
	// URL is that of the run in Carillon's API.
	URL string `json:"url"`
	// Token ends this attempt of this run and permits nothing else. Treat it as a secret.
	Token string `json:"token"`
	// Timeout is how long the work may take, such as "1h0m0s", until it says that it is done, or sends a heartbeat: the
	// deadline counts from the acceptance, and again from each heartbeat.
	Timeout string `json:"timeout,omitempty"`

	// Client makes the requests; nil: one with a timeout of 10 s.
	Client *http.Client `json:"-"`
}

// ErrOver means that nothing waits for the callback any more: the attempt is over, in another way than the callback says, or
// the run was cancelled. Stop the work.
var ErrOver = errors.New("the attempt is over")

// ErrNoCallback means that the job has no callback.
var ErrNoCallback = errors.New("the job has no callback")

// Progress is how far the work is.
type Progress struct {
	// Text is cut to 1024 bytes; empty: as before.
	Text string `json:"progress,omitempty"`
	// Percent is 0 to 100; nil: as before.
	Percent *int `json:"percent,omitempty"`
}

// Complete says that the work is done. Of the message, the first 1024 bytes are kept with the attempt. To complete again is no
// error. While the API cannot be reached, Complete tries again until ctx ends, or for an hour: the work would be repeated.
func (c Callback) Complete(ctx context.Context, message string) error {
	return c.post(ctx, "complete", map[string]string{"message": cut(message)}, mostTries)
}

// Fail says that the work failed, and why, in 1024 bytes that are kept with the attempt. Carillon attempts the run again if its
// job says so. While the API cannot be reached, it tries again as Complete does.
func (c Callback) Fail(ctx context.Context, message string) error {
	return c.post(ctx, "fail", map[string]string{"message": cut(message)}, mostTries)
}

// Heartbeat says that the work goes on, which moves the deadline of the callback. It gives up sooner than Complete, because
// another heartbeat follows.
func (c Callback) Heartbeat(ctx context.Context, progress Progress) error {
	progress.Text = cut(progress.Text)
	const tries = 4
	return c.post(ctx, "heartbeat", progress, tries)
}

// cut keeps what the API keeps of a text.
func cut(text string) string {
	const most = 1024
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// The waits before a callback that failed for reasons of the network or the server is repeated; the last one again and again.
// With mostTries they make an hour.
var pauses = []time.Duration{time.Second, 5 * time.Second, 15 * time.Second}

const mostTries = 240

// post makes a callback. It repeats it while the API does not answer: a node may just be replaced, or the database.
func (c Callback) post(ctx context.Context, what string, body any, tries int) error {
	if c.URL == "" {
		return ErrNoCallback
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("callback %s: %w", what, err)
	}
	for n := 1; ; n++ {
		again, err := c.once(ctx, what, text)
		if !again || n >= tries {
			return err
		}
		timer := time.NewTimer(pauses[min(n, len(pauses))-1])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// once makes one request, and tells whether another may succeed.
func (c Callback) once(ctx context.Context, what string, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/"+what, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("callback %s: %w", what, err)
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	request.Header.Set("Content-Type", "application/json")
	client := c.Client
	if client == nil {
		client = &http.Client{Timeout: 10 * time.Second}
	}
	response, err := client.Do(request)
	if err != nil {
		return ctx.Err() == nil, fmt.Errorf("callback %s: %w", what, err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	switch status := response.StatusCode; {
	case status == http.StatusOK:
		return false, nil
	case status == http.StatusConflict:
		return false, fmt.Errorf("callback %s: %w: %s", what, ErrOver, text)
	default:
		return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError,
			fmt.Errorf("callback %s: the API responded with status %d: %s", what, status, text)
	}
}

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
