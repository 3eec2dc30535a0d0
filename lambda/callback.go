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

// Callback ends an attempt that a function or worker has accepted. Use it for work that takes
// longer than a request. The zero value means that the job has no callback.
type Callback struct {
	// URL is that of the run in Carillon's API.
	URL string `json:"url"`
	// Token ends this attempt of this run and permits nothing else. Treat it as a secret.
	Token string `json:"token"`
	// Timeout is how long the work may take, such as "1h0m0s", without a callback or heartbeat. It
	// counts from the acceptance and again from each heartbeat.
	Timeout string `json:"timeout,omitempty"`

	// Client sends the requests; nil means a client with a timeout of 10 s.
	Client *http.Client `json:"-"`
}

// ErrOver means that Carillon no longer waits for the callback: the attempt already ended in
// another way, or the run was cancelled. Stop the work.
var ErrOver = errors.New("the attempt is over")

// ErrNoCallback means that the job has no callback.
var ErrNoCallback = errors.New("the job has no callback")

// Progress is the progress of the work.
type Progress struct {
	// Text is cut to 1024 bytes; an empty text keeps the previous one.
	Text string `json:"progress,omitempty"`
	// Percent is 0 to 100; nil keeps the previous value.
	Percent *int `json:"percent,omitempty"`
}

// Complete ends the attempt as succeeded and stores the first 1024 bytes of message with it. It may be repeated.
// While the API is unreachable, it retries until ctx ends, at most for an hour: otherwise the work would be repeated.
func (c Callback) Complete(ctx context.Context, message string) error {
	return c.post(ctx, "complete", map[string]string{"message": cut(message)}, mostTries)
}

// Fail ends the attempt as failed and stores the first 1024 bytes of message with it. Carillon retries the
// run if its job has retries left. While the API is unreachable, Fail retries as Complete does.
func (c Callback) Fail(ctx context.Context, message string) error {
	return c.post(ctx, "fail", map[string]string{"message": cut(message)}, mostTries)
}

// Heartbeat reports that the work goes on, and moves the deadline of the callback. It gives up
// sooner than Complete, because another heartbeat follows.
func (c Callback) Heartbeat(ctx context.Context, progress Progress) error {
	progress.Text = cut(progress.Text)
	const tries = 4
	return c.post(ctx, "heartbeat", progress, tries)
}

// cut shortens a text to the length that the API stores.
func cut(text string) string {
	const most = 1024
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// pauses are the waits between tries of a callback that failed in the network or on the server. The
// last one repeats; with mostTries they add up to an hour.
var pauses = []time.Duration{time.Second, 5 * time.Second, 15 * time.Second}

const mostTries = 240

// post sends a callback. It retries while the API is unreachable, as during a restart of a node or a failover.
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

// once sends one request and reports whether to try again.
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

// WithState returns a handler's result that also sets the state for the next run. The job must have
// carry_state. The JSON of state has at most 4 KiB; nil clears the state. The JSON of result, if it
// is not nil, is an object: its members stand next to the state.
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

// CompleteWithState is Complete, and also sets the state for the next run of the job, as WithState does.
func (c Callback) CompleteWithState(ctx context.Context, message string, state any) error {
	return c.post(ctx, "complete", map[string]any{"message": cut(message), "state": state}, mostTries)
}
