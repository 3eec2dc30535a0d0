package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	// heartbeatsPerExpiry is how many times a worker registers before its registration would expire.
	heartbeatsPerExpiry = 3
	// The pause after a failed registration starts at firstPause and doubles.
	firstPause = 500 * time.Millisecond
	mostPause  = 10 * time.Second
)

// refusedError is the API's reason to refuse a registration. The same registration would be refused again.
type refusedError struct {
	status int
	text   string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the API refuses the registration with status %d: %s", e.status, e.text)
}

// Run registers the worker and keeps it registered until ctx ends. Then it removes the worker from
// its group, waits at most Options.StopTimeout for the requests in flight, and returns nil: the
// server may be closed. If the API refuses the first registration, for example because of a wrong
// token, Run returns the error at once. It retries after any other error. Call it once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.keepRegistered(ctx); err != nil {
		close(w.stopping)
		close(w.over)
		return err
	}
	w.stop(context.WithoutCancel(ctx))
	return nil
}

// keepRegistered renews the registration until ctx ends.
func (w *Worker) keepRegistered(ctx context.Context) error {
	pause, wasIn, failing := firstPause, false, false
	for ctx.Err() == nil {
		next, err := w.register(ctx)
		var refused *refusedError
		switch {
		case err == nil:
			if !wasIn || failing {
				w.o.Log.InfoContext(ctx, "registered", "app", w.o.App, "group", w.o.Group, "endpoint", w.o.ID, "url", w.o.URL)
			}
			pause, wasIn, failing = firstPause, true, false
			sleep(ctx, next)
			continue
		case errors.As(err, &refused) && !wasIn:
			return fmt.Errorf("worker %s: %w", w.o.ID, refused)
		case !failing && ctx.Err() == nil:
			w.o.Log.WarnContext(ctx, "registration failed; trying again until it succeeds", "endpoint", w.o.ID, "error", err)
			failing = true
		}
		sleep(ctx, pause/2+rand.N(pause/2)) //nolint:gosec // spreads the retries of many workers; nothing depends on it
		pause = min(2*pause, mostPause)
	}
	return nil
}

// register registers once and returns the pause until the next registration.
func (w *Worker) register(ctx context.Context) (next time.Duration, err error) {
	body, err := json.Marshal(struct {
		URL    string            `json:"url"`
		Weight int               `json:"weight,omitempty"`
		Backup bool              `json:"backup,omitempty"`
		Labels map[string]string `json:"labels,omitempty"`
	}{w.o.URL, w.o.Weight, w.o.Backup, w.o.Labels})
	if err != nil {
		return 0, err
	}
	text, header, err := w.request(ctx, http.MethodPut, body)
	if err != nil {
		return 0, err
	}
	var endpoint struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal(text, &endpoint); err != nil || endpoint.ExpiresAt.IsZero() {
		return 0, errors.New("the API responds with something else than an endpoint; check Options.API")
	}
	// The clock of this machine may be wrong, so the clock of the API counts.
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0, fmt.Errorf("the response of the API has no Date: %w", err)
	}
	return max(endpoint.ExpiresAt.Sub(now)/heartbeatsPerExpiry, firstPause), nil
}

// request makes a request about the endpoint, and returns the body of its response.
func (w *Worker) request(ctx context.Context, method string, body []byte) ([]byte, http.Header, error) {
	url := w.o.API + "/v1/apps/" + w.o.App + "/groups/" + w.o.Group + "/endpoints/" + w.o.ID
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+w.o.Token)
	r.Header.Set("Content-Type", "application/json")
	response, err := w.o.Client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostBody))
	switch status := response.StatusCode; {
	case err != nil:
		return nil, nil, err
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout:
		return nil, nil, &refusedError{status, string(text)}
	case status < 200 || status > 299:
		return nil, nil, fmt.Errorf("the API responds with status %d: %s", status, text)
	}
	return text, response.Header, nil
}

// stop leaves the group and waits for the requests in flight.
func (w *Worker) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.o.StopTimeout)
	defer cancel()
	close(w.stopping)
	if _, _, err := w.request(ctx, http.MethodDelete, nil); err != nil {
		w.o.Log.WarnContext(ctx, "leaving the group failed; the registration expires", "endpoint", w.o.ID, "error", err)
	}
	w.mu.Lock()
	idle := make(chan struct{})
	if w.count == 0 {
		close(idle)
	} else {
		w.idle = idle
	}
	w.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	close(w.over)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
