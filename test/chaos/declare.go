package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// declarer declares jobs through the API of any responsive node, and records its declarations.
type declarer struct {
	*chaos
	token string
	log   *history.Log
	apps  []string

	mu       sync.Mutex
	puts     int
	declared map[string]history.Declaration // the latest of each job, by app and name
	tags     map[string]string              // ETags; empty for a missing job
}

func newDeclarer(c *chaos, token string) (*declarer, error) {
	log, err := history.Create(c.dir, history.Declarations, false)
	return &declarer{chaos: c, token: token, log: log, declared: map[string]history.Declaration{}, tags: map[string]string{}}, err
}

// change edits definitions during the run, and declares one-shots.
func (d *declarer) change(ctx context.Context) {
	schedules := []string{"rate(1s)", "*/2 * * * * ?", "rate(3s)", "1/4 * * * * ?"}
	for i := 0; ctx.Err() == nil; i++ {
		j := job{app: "north", name: fmt.Sprintf("changing-%d", d.intN(4)), path: "/ok",
			expression: schedules[d.intN(len(schedules))], misfireAfter: "3s"}
		enabled := d.intN(5) > 0
		if i%3 == 2 {
			at := time.Now().Add(d.between(time.Second, 6*time.Second)).UTC().Truncate(time.Millisecond)
			j = job{app: "south", name: fmt.Sprintf("once-%d", i), path: "/ok", expression: "at(" + at.Format("2006-01-02T15:04:05.000Z") + ")"}
			enabled = true
		}
		var err error
		if i%11 == 10 {
			err = d.remove(ctx, j.app, j.name)
		} else {
			err = d.put(ctx, j, enabled)
		}
		if err != nil && ctx.Err() == nil {
			d.trouble(err)
		}
		pause(ctx, d.between(100*time.Millisecond, 600*time.Millisecond))
	}
}

// remove deletes a job, if it was declared.
func (d *declarer) remove(ctx context.Context, app, name string) error {
	d.mu.Lock()
	was, known := d.declared[app+"/"+name]
	d.mu.Unlock()
	if !known || was.Deleted {
		return nil
	}
	was.Deleted, was.Triggers = true, nil
	return d.write(ctx, was, http.MethodDelete, func(int) any { return nil })
}

// write repeats a declaration until it is known to be done, and records it before and after.
func (d *declarer) write(ctx context.Context, of history.Declaration, method string, body func(put int) any) error {
	path := "/v1/apps/" + of.App + "/jobs/" + of.Job
	d.mu.Lock()
	d.puts++
	of.Put = d.puts
	d.declared[of.App+"/"+of.Job] = of
	tag := d.tags[path]
	d.mu.Unlock()
	of.Begun, of.Answered = time.Now(), time.Time{}
	if err := d.log.Append(of); err != nil {
		return err
	}
	tag, err := d.send(ctx, method, path, tag, body(of.Put), func(ctx context.Context, n *node) (string, bool, error) {
		return d.applied(ctx, n, path, of)
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.tags[path] = tag
	d.mu.Unlock()
	of.Answered = time.Now()
	return d.log.Append(of)
}

// applied reports whether a node has a job as declared, and its ETag.
func (d *declarer) applied(ctx context.Context, n *node, path string, of history.Declaration) (string, bool, error) {
	response, err := d.ask(ctx, n, http.MethodGet, path, "", nil)
	if err != nil {
		return "", false, err
	}
	var job struct{ Payload struct{ Put int } }
	_ = json.Unmarshal(response.body, &job) // an error has none, and so differs from the declaration
	gone := response.status == http.StatusNotFound
	return response.tag, gone && of.Deleted || !gone && job.Payload.Put == of.Put, nil
}

// send tries one node after the other until one has executed the request, and returns the ETag of
// the result. A frozen node may execute a seemingly failed request later, so each request carries
// the condition that nothing has changed since. If a node reports a change, applied checks whether
// this very request made it.
func (d *declarer) send(ctx context.Context, method, path, tag string, body any,
	applied func(context.Context, *node) (string, bool, error)) (string, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	// A change is finished even after the time for faults is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second+d.frozen.most)
	defer cancel()
	var last error
	for first := d.intN(len(d.nodes)); ctx.Err() == nil; first++ {
		n := d.nodes[first%len(d.nodes)]
		response, err := d.ask(ctx, n, method, path, tag, text)
		switch {
		case err != nil:
			last = err
		case response.status < 300:
			return response.tag, nil
		case response.status == http.StatusPreconditionFailed || response.status == http.StatusNotFound && method == http.MethodDelete:
			if tag, done, err := applied(ctx, n); err != nil || done {
				if done {
					return tag, nil
				}
				last = err
				break
			}
			return "", fmt.Errorf("%s %s: another client has changed it", method, path)
		case response.status == http.StatusPreconditionRequired:
			return response.tag, nil // an earlier try created it, and its response was lost
		case response.status == http.StatusConflict && method == http.MethodPost:
			return "", errConflict
		case response.status < 500 && bytes.Contains(response.body, []byte("at_past")):
			return tag, nil // an earlier try came late
		default:
			last = fmt.Errorf("%s %s: %d: %s", method, path, response.status, response.body)
			if response.status < 500 && response.status != http.StatusTooManyRequests {
				return "", last
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	return "", fmt.Errorf("no node executed the request: %w", last)
}

// response is a node's response.
type response struct {
	status int
	tag    string
	body   []byte
}

// ask sends one request on the condition that the object has the ETag, or does not exist if the
// ETag is empty. "*" sets no condition; a PUT then only creates.
func (d *declarer) ask(ctx context.Context, n *node, method, path, tag string, body []byte) (a response, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+n.listen+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	request.Header.Set("Content-Type", "application/json")
	switch {
	case method == http.MethodGet || tag == "*":
	case tag == "":
		request.Header.Set("If-None-Match", "*")
	default:
		request.Header.Set("If-Match", tag)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.status, a.tag = response.StatusCode, response.Header.Get("ETag")
	a.body, err = io.ReadAll(response.Body)
	return a, err
}
