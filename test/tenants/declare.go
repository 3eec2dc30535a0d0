package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The app's fires each second.
const (
	steadyJobs     = 4
	steadyTriggers = 10 // of each of them
	secretJobs     = 3
	sharedTriggers = 5
	perSecond      = steadyJobs*steadyTriggers + secretJobs + sharedTriggers + 1 // of chainJob
)

// Jobs with queued runs: reportJob follows each run of chainJob, and manualJob runs on the owner's request.
const (
	chainJob  = "load"
	reportJob = "report"
	manualJob = "manual"
)

// call sends a request to an API, and returns status and body.
func call(ctx context.Context, method, url, token, body string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return response.StatusCode, string(all), err
}

// put writes a definition, which must be accepted.
func (w *world) put(ctx context.Context, token, path string, definition any) error {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(definition); err != nil {
		return err
	}
	status, text, err := call(ctx, "PUT", "http://"+w.nodes[0].listen+path, token, body.String())
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("PUT %s: status %d: %.500s", path, status, text)
	}
	return err
}

// object is a JSON object.
type object = map[string]any

// declare writes both apps as an operator, and the jobs of the first app as its owner.
func (w *world) declare(ctx context.Context) error {
	bounds := object{"lambda": object{"functions": []string{functionARN}}}
	if err := w.put(ctx, w.operator, "/v1/apps/"+appName, object{"bounds": bounds}); err != nil {
		return err
	}
	for _, app := range []string{hostileName, importedName, chainedName, slowName} {
		if err := w.put(ctx, w.operator, "/v1/apps/"+app, object{}); err != nil {
			return err
		}
	}
	targets := w.targets()
	names := sortedKeys(targets)
	slices.SortStableFunc(names, func(a, b string) int { // a job that another one names comes first
		return strings.Compare(strconv.FormatBool(a == chainJob), strconv.FormatBool(b == chainJob))
	})
	for _, name := range names {
		triggers := object{}
		for i := range triggersOf(name) {
			triggers["t"+strconv.Itoa(i)] = object{"expression": "* * * * * ?", "timezone": "UTC"}
		}
		job := object{"target": targets[name], "triggers": triggers, "payload": object{"mark": payloadMark}}
		if name == chainJob {
			job["on_success"] = object{"jobs": []string{reportJob}}
		}
		if err := w.put(ctx, w.owner, "/v1/apps/"+appName+"/jobs/"+name, job); err != nil {
			return err
		}
	}
	return nil
}

// targets are the targets of the app's jobs.
func (w *world) targets() map[string]object {
	withKey := func(path string, key object) object {
		return object{"webhook": object{"url": w.receivers.own + path, "auth": object{"api_key": object{"header": "X-Key", "key": key}}}}
	}
	all := map[string]object{
		"env":     withKey("/env", object{"reference": "env:SECRET_PAYROLL_KEY"}),
		"file":    withKey("/file", object{"reference": "file:" + appName + "/key"}),
		"stored":  withKey("/stored", object{"value": storedMark}),
		"shared":  {"webhook": object{"url": w.receivers.shared + "/good"}},
		"lambda":  {"lambda": object{"function": functionARN}},
		chainJob:  {"webhook": object{"url": w.receivers.own + "/steady"}},
		reportJob: {"webhook": object{"url": w.receivers.own + "/queued"}},
		manualJob: {"webhook": object{"url": w.receivers.own + "/queued"}},
	}
	for i := range steadyJobs {
		all["steady-"+strconv.Itoa(i)] = object{"webhook": object{"url": w.receivers.own + "/steady"}}
	}
	return all
}

func triggersOf(job string) int {
	switch {
	case strings.HasPrefix(job, "steady"):
		return steadyTriggers
	case job == "shared":
		return sharedTriggers
	case job == reportJob, job == manualJob:
		return 0
	}
	return 1
}
