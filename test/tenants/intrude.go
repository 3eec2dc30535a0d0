package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// intrusions are the hostile owner's actions with imports, chains, retries, payloads and slow connections.
func intrusions() []action {
	return []action{
		{"import runs of others", 200 * time.Millisecond, 1, (*hostile).importRuns},
		{"import numbers out of range", 500 * time.Millisecond, 1, (*hostile).importNumbers},
		{"import large files", 5 * time.Second, 1, (*hostile).importLarge},
		{"multiply chains", 20 * time.Millisecond, 1, (*hostile).multiply},
		{"retry at dead targets", 100 * time.Millisecond, 1, (*hostile).retryDead},
		{"run with payloads", 100 * time.Millisecond, 1, (*hostile).runWithPayload},
		{"send slow bodies", 2 * time.Millisecond, 1, (*hostile).sendSlowly},
		{"call back", 20 * time.Millisecond, 1, (*hostile).callBack},
		{"repeat work", 200 * time.Millisecond, 1, (*hostile).repeatWork},
		{"read slowly", 5 * time.Millisecond, 1, (*hostile).readSlowly},
	}
}

// Apps of the hostile owner: one is deleted and imported repeatedly, one has chains, and one has slow clients.
const (
	importedName = "hostile-imported"
	chainedName  = "hostile-chained"
	slowName     = "hostile-slow"
)

// importInto deletes an app of the hostile owner and imports a file into it: an import needs a missing app.
func (h *hostile) importInto(ctx context.Context, random *rand.Rand, action string, jobs, runs any) {
	app := "/v1/apps/" + importedName
	h.importing.Lock()
	defer h.importing.Unlock()
	h.ask(ctx, random, "delete jobs", "DELETE", app+"/jobs/x", "", "If-Match: *")
	h.ask(ctx, random, "delete an app", "DELETE", app, "", "If-Match: *")
	body, err := json.Marshal(object{"format": 1, "installation": "x", "app": object{"name": importedName, "enabled": false},
		"jobs": jobs, "waiting_runs": runs})
	if err != nil {
		h.did(action, "error")
		return
	}
	h.ask(ctx, random, action, "POST", app+"/import", string(body))
}

func (h *hostile) importedJob() []object {
	return []object{{"job": object{"app": importedName, "name": "x", "target": webhook(h.own+"/ok", nil)}, "revision": 1, "paused": false,
		"triggers": object{}}}
}

// importRuns imports runs of the other app: existing ones, and future ones of its chains. Ids follow from names.
func (h *hostile) importRuns(ctx context.Context, random *rand.Rand, n int) {
	var runs []object
	add := func(id string, at time.Time, kind run.Kind) {
		runs = append(runs, object{"job": "x", "kind": kind, "scheduled_at": at.UTC().Format(time.RFC3339Nano), "state": "queued", "attempt": 1,
			"run": id, "input": object{"payload": object{"from": hostileName}}})
	}
	if n%2 == 0 {
		for _, id := range h.Runs {
			if key, err := run.ParseKey(id); err == nil {
				add(id, key.ScheduledAt, key.Kind)
			}
		}
	}
	for i := range 20 {
		at := time.Now().UTC().Truncate(time.Second).Add(time.Duration(i-5) * time.Second)
		key := dispatcher.FollowerKey(nil, run.Key{TriggerID: run.TriggerID(appName, chainJob, "t0"), ScheduledAt: at,
			Kind: run.KindSchedule}, run.OnSuccess, run.JobID(appName, reportJob), run.KindChain)
		add(key.String(), at, run.KindChain)
	}
	h.importInto(ctx, random, "import runs of others", h.importedJob(), runs)
	for _, id := range h.Runs {
		if status, _ := h.ask(ctx, random, "import runs of others", "GET", "/v1/runs/"+id, ""); status == http.StatusOK {
			h.leak("took run %s of the app by an import", id)
		}
	}
}

// importNumbers imports runs with numbers that a column or a policy does not accept, and a duplicate.
func (h *hostile) importNumbers(ctx context.Context, random *rand.Rand, n int) {
	run := object{"job": "x", "kind": "manual", "scheduled_at": time.Now().UTC().Format(time.RFC3339), "state": "queued", "attempt": 1}
	switch n % 7 {
	case 0:
		run["attempt"] = 1<<31 - 1
	case 1:
		run["attempt"] = uint64(1<<63 - 1)
	case 2:
		run["attempt"] = -1
	case 3:
		run["failures"] = 1<<31 - 1
	case 4:
		run["state"], run["next_attempt_at"], run["attempt"] = "retrying", "9999-12-31T23:59:59Z", 999
	case 5:
		run["scheduled_at"] = "0001-01-01T00:00:00Z"
	}
	h.importInto(ctx, random, "import numbers out of range", h.importedJob(), []object{run, run}[:1+n%2])
	h.cancelImported(ctx, random)
}

// cancelImported cancels imported runs, whatever their numbers are.
func (h *hostile) cancelImported(ctx context.Context, random *rand.Rand) {
	_, text := h.ask(ctx, random, "cancel imported runs", "GET", "/v1/apps/"+importedName+"/runs?limit=5", "")
	var page struct{ Items []struct{ ID string } }
	_ = json.Unmarshal([]byte(text), &page) // an error leaves nothing to cancel
	for _, one := range page.Items {
		status, _ := h.ask(ctx, random, "cancel imported runs", "POST", "/v1/runs/"+one.ID+"/cancel", "")
		if status == http.StatusInternalServerError {
			h.leak("imported a run that cannot be cancelled")
		}
	}
}

// importLarge imports files that take much memory, or contain many runs.
func (h *hostile) importLarge(ctx context.Context, random *rand.Rand, n int) {
	var jobs, runs any = h.importedJob(), []object{}
	switch n % 3 {
	case 0:
		jobs = make([]struct{}, 1_000_000)
	case 1:
		many := make([]json.RawMessage, 100_000)
		for i := range many {
			many[i] = json.RawMessage(`{"job":{"target":{"webhook":{}}}}`)
		}
		jobs = many
	case 2:
		many := make([]object, 60_000)
		for i := range many {
			many[i] = object{"job": "x", "kind": "manual", "scheduled_at": time.Unix(1_800_000_000+int64(i), 0).UTC().Format(time.RFC3339),
				"state": "queued", "attempt": 1}
		}
		runs = many
	}
	h.importInto(ctx, random, "import large files", jobs, runs)
}

// Layers of jobs that each follow the whole previous layer: one run causes chainWidth to the power of chainLayers runs.
const (
	chainLayers = 5
	chainWidth  = 20
)

// multiply declares the layers, last one first, and then runs the first job.
func (h *hostile) multiply(ctx context.Context, random *rand.Rand, n int) {
	path := "/v1/apps/" + chainedName + "/jobs/"
	if n >= chainLayers*chainWidth+1 {
		h.ask(ctx, random, "multiply chains", "POST", path+"first/run", "")
		_ = pause(ctx, time.Second)
		return
	}
	layer := chainLayers - 1 - n/chainWidth
	name := "first"
	if layer >= 0 {
		name = fmt.Sprintf("l%d-%d", layer, n%chainWidth)
	}
	definition := job(webhook(h.own+"/ok", nil), object{})
	if layer < chainLayers-1 {
		var next []string
		for i := range chainWidth {
			next = append(next, fmt.Sprintf("l%d-%d", layer+1, i))
		}
		definition["on_success"] = object{"jobs": next, "payload": "result"}
	}
	h.put(ctx, random, "multiply chains", path+name, definition)
}

// retryDead declares jobs with many triggers at a target that never responds, and runs with many attempts.
func (h *hostile) retryDead(ctx context.Context, random *rand.Rand, n int) {
	definition := job(webhook(h.Shared+"/hang", object{"timeout": "25s"}), every(100, nil))
	if n%2 == 1 {
		definition = job(webhook("http://127.0.0.1:1/", nil), every(100, nil))
	}
	definition["retry"] = object{"max_attempts": 5}
	h.put(ctx, random, "retry at dead targets", hostilePath+"/jobs/dead-"+strconv.Itoa(n%30), definition)
}

func (h *hostile) runWithPayload(ctx context.Context, random *rand.Rand, _ int) {
	h.ask(ctx, random, "run with payloads", "POST", hostilePath+"/jobs/failing/run", `{"payload":"`+strings.Repeat("x", 250_000)+`"}`)
}

// acceptance has the data for a callback.
type acceptance struct{ path, token string }

// accept records the latest attempts that its receiver has accepted.
func (h *hostile) accept(header http.Header) {
	at, err := url.Parse(header.Get("Carillon-Callback-URL"))
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	const most = 100
	h.accepted = append(h.accepted[max(0, len(h.accepted)-most+1):], acceptance{at.Path, header.Get("Carillon-Callback-Token")})
}

// callBack sends heartbeats and outcomes of attempts. Sometimes it tries their tokens on runs of the other app.
func (h *hostile) callBack(ctx context.Context, random *rand.Rand, n int) {
	h.mu.Lock()
	var one acceptance
	if len(h.accepted) > 0 {
		one = h.accepted[random.IntN(len(h.accepted))]
	}
	h.mu.Unlock()
	header := "Authorization: Bearer " + one.token
	switch {
	case one.token == "":
	case n%50 == 0 && len(h.Runs) > 0:
		id := h.Runs[random.IntN(len(h.Runs))]
		if status, _ := h.ask(ctx, random, "call back", "POST", "/v1/runs/"+id+"/complete", `{}`, header); status < 300 && status > 0 {
			h.leak("completed run %s of the app with a token of its own", id)
		}
	case n%20 == 0:
		h.ask(ctx, random, "call back", "POST", one.path+[]string{"/complete", "/fail"}[random.IntN(2)],
			`{"message":"`+strings.Repeat("x", 1000)+`"}`, header)
	default:
		h.ask(ctx, random, "call back", "POST", one.path+"/heartbeat", `{"progress":"`+strings.Repeat("x", 200)+`"}`, header)
	}
}

// repeatWork requests backfills with large payloads, and bulk actions.
func (h *hostile) repeatWork(ctx context.Context, random *rand.Rand, n int) {
	to := time.Now().UTC().Truncate(time.Second)
	body, path := fmt.Sprintf(`{"from":%q,"to":%q,"existing":"run","concurrency":50,"payload":%q}`, to.Add(-time.Hour).Format(time.RFC3339),
		to.Format(time.RFC3339), strings.Repeat("x", 100_000)), "/jobs/"+[]string{"failing", "slow", "accepted"}[n%3]+"/backfill"
	if n%2 == 1 {
		body = []string{`{"action":"retry_runs","filter":{}}`, `{"action":"cancel_runs","filter":{"state":"retrying"}}`,
			`{"action":"run_jobs","filter":{}}`}[random.IntN(3)]
		path = "/bulk"
	}
	h.ask(ctx, random, "repeat work", "POST", hostilePath+path, body)
}

// sendSlowly sends one byte of a body, to routes with and without a token, and to a route that takes no body.
func (h *hostile) sendSlowly(ctx context.Context, random *rand.Rand, n int) {
	line := []string{"POST /v1/schedules/preview", "GET /livez", "POST /v1/apps/" + slowName + "/jobs/x/run", "POST /nowhere",
		"POST /v1/runs/x/heartbeat", "POST /v1/apps/" + slowName + "/import", "POST /console/login"}[n%7]
	h.keep(ctx, random, "send slow bodies", line+" HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"+
		"Authorization: Bearer "+h.Dawdler+"\r\n\r\n{")
}

// readSlowly requests long responses, and reads none of them.
func (h *hostile) readSlowly(ctx context.Context, random *rand.Rand, n int) {
	path := []string{"/openapi.json", "/v1/apps/" + slowName + "/export", "/v1/audit?limit=1000"}[n%3]
	request := "GET " + path + " HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer " + h.Dawdler + "\r\n\r\n"
	h.keep(ctx, random, "read slowly", strings.Repeat(request, 50))
}

// mostSlow is the largest number of connections of one of these actions.
const mostSlow = 600

// keep sends a text over a new connection, and waits half a minute or until it is closed, without reading.
func (h *hostile) keep(ctx context.Context, random *rand.Rand, action, text string) {
	h.mu.Lock()
	full := h.slow[action] >= mostSlow
	if !full {
		h.slow[action]++
	}
	h.mu.Unlock()
	if full {
		return
	}
	end := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.slow[action]--
	}
	conn, err := h.dialAs(ctx, "tcp", h.Nodes[random.IntN(len(h.Nodes))], net.IPv4(127, 0, 0, byte(70+random.IntN(10))))
	if err != nil {
		h.did(action, "refused")
		end()
		return
	}
	h.did(action, "opened")
	go func() {
		defer end()
		defer conn.Close()
		_, _ = conn.Write([]byte(text)) // a node may close it at once
		_ = pause(ctx, 30*time.Second)
	}()
}
