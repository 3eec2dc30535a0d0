package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Codes of the protocol.
const (
	codeSuccess = 200
	codeFailure = 500
	codeTimeout = 502
)

// mostResults is the largest number of results in a callback.
const mostResults = 50

// reply is the response of both sides, always with status 200.
type reply struct {
	Code    int    `json:"code"`
	Msg     string `json:"msg"`
	Content any    `json:"content,omitempty"`
}

// registration is the body of /api/registry and /api/registryRemove.
type registration struct {
	Group string `json:"registryGroup"`
	Key   string `json:"registryKey"`
	Value string `json:"registryValue"`
}

// result is an element of the body of /api/callback.
type result struct {
	LogID      int64  `json:"logId"`
	LogDateTim int64  `json:"logDateTim"`
	Code       int    `json:"handleCode"`
	Msg        string `json:"handleMsg"`
}

// admin is the scheduler, at one of several addresses.
type admin struct {
	addresses []string
	token     string
	retry     time.Duration
	results   chan result
	undone    []result // of failed callbacks; only deliver and, after it, flush use it
}

// post sends a request to the first address that accepts it.
func (a *admin) post(ctx context.Context, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var all error
	for _, address := range a.addresses {
		err := a.postTo(ctx, address+path, text)
		if err == nil {
			return nil
		}
		all = errors.Join(all, err)
	}
	return all
}

func (a *admin) postTo(ctx context.Context, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json;charset=UTF-8")
	request.Header.Set("XXL-JOB-ACCESS-TOKEN", a.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, response.StatusCode)
	}
	var got reply
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		return err
	}
	if got.Code != codeSuccess {
		return fmt.Errorf("%s: code %d: %s", url, got.Code, got.Msg)
	}
	return nil
}

// deliver calls back with results until ctx ends. It resends undelivered ones after a pause.
func (a *admin) deliver(ctx context.Context) {
	ticker := time.NewTicker(a.retry)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-a.results:
			a.callBack(ctx, a.batch(first))
		case <-ticker.C:
			again := a.undone
			a.undone = nil
			for len(again) > 0 {
				n := min(len(again), mostResults)
				a.callBack(ctx, again[:n])
				again = again[n:]
			}
		}
	}
}

// batch returns a result with the others that are already waiting.
func (a *admin) batch(first result) []result {
	all := []result{first}
	for len(all) < mostResults {
		select {
		case next := <-a.results:
			all = append(all, next)
		default:
			return all
		}
	}
	return all
}

func (a *admin) callBack(ctx context.Context, all []result) {
	if err := a.post(ctx, "/api/callback", all); err != nil {
		slog.WarnContext(ctx, "call back", "results", len(all), "err", err)
		a.undone = append(a.undone, all...)
	}
}

// flush calls back with all remaining results.
func (a *admin) flush(ctx context.Context) error {
	all := a.undone
	for len(a.results) > 0 {
		all = append(all, <-a.results)
	}
	if len(all) == 0 {
		return nil
	}
	return a.post(ctx, "/api/callback", all)
}
