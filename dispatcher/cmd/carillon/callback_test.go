package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// blockOf returns the first block of a language on a page of the docs.
func blockOf(t *testing.T, page, language string) string {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "..", "docs", page)))
	m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindSubmatch(text)
	if m == nil {
		t.Fatalf("docs/%s has no block of %s", page, language)
	}
	return string(m[1])
}

// The story of docs/long-work.md: its job is applied, and its script calls back.
func TestStoryOfLongWork(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	need.Program(t, "curl", "curl")
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	address := freeAddress(t)
	n := launchNode(t, database, newToken(t, database), nil,
		append(quick(), "--listen", address, "--callback-url", "http://"+address+"/")...)
	n.endpoint = "http://" + address
	n.Client = must[*client.Client](t)(client.New(n.endpoint, n.token, client.Options{Timeout: patience}))
	n.awaitReady()
	accepted := make(chan http.Header, 1)
	importer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		accepted <- r.Header
	}))
	t.Cleanup(importer.Close)

	w := emptyWorkspace(t, n)
	config := `terraform {
  required_providers {
    carillon = { source = "carillon-dev/carillon" }
  }
}
resource "carillon_app" "shop" { name = "shop" }
` + strings.ReplaceAll(blockOf(t, "long-work.md", "terraform"), "https://importer.example.com", importer.URL)
	if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	w.apply()
	if out, code := w.terraform("plan", "-detailed-exitcode", "-no-color"); code != 0 {
		t.Errorf("plan after apply: exit %d, want no change:\n%s", code, out)
	}

	r := must[run.Run](t)(n.RunJob(t.Context(), "shop", "import"))
	got := receive(t, accepted)
	n.awaitCallback(r.ID)
	script, lastCall, _ := strings.Cut(blockOf(t, "long-work.md", "sh"), "call_back complete")
	n.sh(t, script, got)
	waiting := must[run.Run](t)(n.Run(t.Context(), r.ID))
	if c := waiting.Callback; c == nil || c.Progress != "36 of 40 files" || c.Percent == nil || *c.Percent != 90 ||
		c.Deadline.Sub(*c.HeartbeatAt) != 30*time.Minute {
		t.Errorf("callback: got %+v, want the progress and half an hour from it", c)
	}
	shown, _, _ := carillon(t, []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}, "run", "show", r.ID)
	if !strings.Contains(shown, "90 % 36 of 40 files") || !strings.Contains(shown, "callback by") {
		t.Errorf("carillon run show says\n%s", shown)
	}
	beginning, _, _ := strings.Cut(script, "call_back heartbeat")
	n.sh(t, beginning+"call_back complete"+lastCall, got)
	ended := must[run.Run](t)(n.Run(t.Context(), r.ID))
	if ended.State != run.Succeeded || len(ended.Attempts) != 1 || ended.Attempts[0].Response.CallbackResult != "40 files" {
		t.Errorf("run: got %+v, want it succeeded with its result", ended)
	}
	if token := got.Get("Carillon-Callback-Token"); token == "" || strings.Contains(n.logs.String(), token) {
		t.Error("the log of the node has the token, or there was none")
	}
}

// A target that gets the callback only in fields of its body ends its run with them. Neither the
// logs nor the request that the API shows contain the token.
func TestTargetCallsBackWithFieldsOfItsBody(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	address := freeAddress(t)
	n := launchNode(t, database, newToken(t, database), nil,
		append(quick(), "--listen", address, "--callback-url", "http://"+address+"/", "--log-level=debug")...)
	n.endpoint = "http://" + address
	n.Client = must[*client.Client](t)(client.New(n.endpoint, n.token, client.Options{Timeout: patience}))
	n.awaitReady()
	type order struct{ Complete, Bearer, Within string }
	orders := make(chan order, 1)
	renderer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got order
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Errorf("body: %v", err)
		}
		w.WriteHeader(http.StatusAccepted)
		orders <- got
	}))
	t.Cleanup(renderer.Close)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "films", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	job := longJob("films", "render", renderer.URL, input.Duration(2*time.Hour))
	job.Target.Webhook.Body = `{"complete": "{{.CallbackURL}}/complete", "bearer": {{json .CallbackToken}}, "within": "{{.CallbackTimeout}}"}`
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))

	r := must[run.Run](t)(n.RunJob(t.Context(), "films", "render"))
	got := receive(t, orders)
	n.awaitCallback(r.ID)
	if got.Within != "2h0m0s" {
		t.Errorf("got %+v, want two hours", got)
	}
	shown := must[target.ShownRequest](t)(n.RequestOfRun(t.Context(), r.ID))
	if !strings.Contains(shown.Body, target.Mask) || strings.Contains(shown.Body, got.Bearer) {
		t.Errorf("the API shows the body %s, want its token masked", shown.Body)
	}
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, got.Complete, nil))
	request.Header.Set("Authorization", "Bearer "+got.Bearer)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("the callback got %s (%v), want 200", response.Status, err)
	}
	if ended := must[run.Run](t)(n.Run(t.Context(), r.ID)); ended.State != run.Succeeded {
		t.Errorf("run: got %+v, want it succeeded", ended)
	}
	if got.Bearer == "" || strings.Contains(n.logs.String(), got.Bearer) {
		t.Error("the log of the node has the token, or there was none")
	}

	job.Target.Webhook.Callback = nil
	var problems input.Problems
	if _, err := n.PutJob(t.Context(), job, client.Condition{}); !errors.As(err, &problems) || len(problems) != 3 ||
		problems[0].Path != "/target/webhook/body" || !strings.Contains(problems[0].Message, "add callback") {
		t.Errorf("without callback: %v, want three problems of the body", err)
	}
}

// sh runs a script with the headers of a request.
func (n *process) sh(t *testing.T, script string, header http.Header) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", "-euc", script)
	command.Env = append(os.Environ(), "URL="+header.Get("Carillon-Callback-URL"), "TOKEN="+header.Get("Carillon-Callback-Token"))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, script, out)
	}
}

func TestOperatorsEndRunsThatWaitForACallback(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), append(quick(), "--callback-url=http://127.0.0.1:1")...)
	r := newReceiver(t, func(w http.ResponseWriter, _ arrival) { w.WriteHeader(http.StatusAccepted) })
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "long", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
	for how, want := range map[string]run.State{"complete": run.Succeeded, "fail": run.Failed} {
		job := longJob("long", how, r.URL, run.DefaultCallbackTimeout)
		job.Retry.MaxAttempts = 1
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		one := must[run.Run](t)(n.RunJob(t.Context(), "long", how))
		n.awaitCallback(one.ID)
		if out, errs, code := carillon(t, env, "run", how, one.ID, "--message", "by hand"); code != 0 {
			t.Fatalf("carillon run %s: exit %d: %s%s", how, code, out, errs)
		}
		until(t, "the run to end", func() bool { return must[run.Run](t)(n.Run(t.Context(), one.ID)).EndedAt != nil })
		if got := must[run.Run](t)(n.Run(t.Context(), one.ID)); got.State != want {
			t.Errorf("after run %s: got %+v, want it %s", how, got, want)
		}
	}
}

// awaitCallback waits until a run waits for its callback.
func (n *process) awaitCallback(id string) {
	n.t.Helper()
	until(n.t, "the run to wait", func() bool {
		return must[run.Run](n.t)(n.Run(n.t.Context(), id)).State == run.WaitingCallback
	})
}

// longJob is a job without triggers whose target may accept its attempts.
func longJob(app, name, url string, timeout input.Duration) dispatcher.Job {
	job := webhookJob(app, name, url+"/"+name, nil)
	job.Retry.SetDefaults()
	job.Target.Webhook.Callback = &target.CallbackPolicy{Timeout: timeout}
	return job
}

// longWorker accepts attempts and calls back. Jobs "flaky" fail their first attempt, jobs "silent" never report it.
type longWorker struct {
	*httptest.Server
	client  *http.Client
	mu      sync.Mutex
	node    string              // the endpoint of the living node
	sent    map[string]int      // by run and attempt
	ended   map[string][]string // the callbacks that counted, by run
	between map[string]bool     // runs that were attempted after they had completed
	work    sync.WaitGroup
}

func newLongWorker(t *testing.T) *longWorker {
	t.Helper()
	w := &longWorker{sent: map[string]int{}, ended: map[string][]string{}, between: map[string]bool{}}
	calls := &http.Transport{MaxConnsPerHost: 16} // far fewer than a node allows for one address
	w.client = &http.Client{Transport: calls, Timeout: 10 * time.Second}
	stop := make(chan struct{})
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		run, attempt := r.Header.Get("Carillon-Run"), r.Header.Get("Carillon-Attempt")
		w.mu.Lock()
		w.sent[run+" "+attempt]++
		if slices.Contains(w.ended[run], "complete") {
			w.between[run] = true
		}
		w.mu.Unlock()
		what := "complete"
		switch {
		case attempt == "1" && r.URL.Path == "/flaky":
			what = "fail"
		case attempt == "1" && r.URL.Path == "/silent":
			what = ""
		}
		if what != "" {
			header := r.Header.Clone()
			w.work.Go(func() { w.callBack(stop, run, what, header) })
		}
		rw.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(func() { close(stop); w.Close(); w.work.Wait(); calls.CloseIdleConnections() })
	return w
}

// callBack retries until a node responds, as a target must while nodes are replaced.
func (w *longWorker) callBack(stop <-chan struct{}, run, what string, header http.Header) {
	for {
		pause := 50 * time.Millisecond
		w.mu.Lock()
		url := w.node + "/v1/runs/" + run + "/" + what
		w.mu.Unlock()
		request, err := http.NewRequest(http.MethodPost, url, http.NoBody)
		if err != nil {
			return
		}
		request.Header.Set("Authorization", "Bearer "+header.Get("Carillon-Callback-Token"))
		if response, err := w.client.Do(request); err == nil {
			_ = response.Body.Close()
			switch response.StatusCode {
			case http.StatusOK:
				w.mu.Lock()
				w.ended[run] = append(w.ended[run], what)
				w.mu.Unlock()
				return
			case http.StatusConflict, http.StatusUnauthorized:
				return
			case http.StatusTooManyRequests:
				if after, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
					pause = time.Duration(after) * time.Second
				}
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
	}
}

// A node is killed between every two steps of a run that its target accepts and ends by a callback.
// No attempt is sent twice, each run ends, and the reported outcome is never lost or contradicted.
func TestKillBetweenAnyTwoStepsOfLongWorkLosesNoCallback(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		w := newLongWorker(t)
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0", "--callback-url=http://127.0.0.1:1")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		declare := func(n *process, name, expression string, was client.Condition) {
			job := webhookJob("kill", name, w.URL+"/"+name, map[string]string{"a": expression})
			job.Retry.SetDefaults()
			job.Retry.Delays, job.Retry.MaxAttempts = []input.Duration{input.Duration(300 * time.Millisecond)}, 20
			job.Target.Webhook.Callback = &target.CallbackPolicy{Timeout: input.Duration(3 * time.Second)}
			if name == "inturn" { // its slot is granted again after each run
				job.ConcurrencyPolicy, job.QueueLimit = run.ConcurrencyQueue, dispatcher.MaxQueueLimit
			}
			if name == "silent" { // its attempts end while nodes are dead or starting
				job.Retry.MaxAttempts = 100
				// A busy node may serve so few callbacks a second that all attempts of many runs
				// time out. Growing delays make further attempts rarer.
				job.Retry.Delays = append(job.Retry.Delays, input.Duration(2*time.Second), input.Duration(10*time.Second))
			} else {
				job.Target.Webhook.Callback.Timeout = input.Duration(time.Hour) // the target calls back until a node answers
			}
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, was))
		}
		for _, name := range []string{"fine", "flaky", "silent", "inturn"} {
			expression := "* * * * * ?"
			if name == "inturn" { // few of its runs are waiting
				expression = "0/5 * * * * ?"
			}
			declare(n, name, expression, client.Condition{Absent: true})
		}
		n.kill()
		for _, at := range []failpoint.Point{failpoint.AfterSend, failpoint.AfterResponse, failpoint.AfterRecord, failpoint.BeforeCallbackEnd,
			failpoint.InCallback, failpoint.AfterCallback} {
			for _, visit := range []int{1, 5} {
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				w.mu.Lock()
				w.node = victim.endpoint
				w.mu.Unlock()
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		w.mu.Lock()
		w.node = last.endpoint
		w.mu.Unlock()
		for _, name := range []string{"fine", "flaky", "silent", "inturn"} { // a pause would delay retries
			declare(last, name, "0 0 0 1 1 ?", client.Condition{Existing: true})
		}
		w.check(t, last, last.settled(t, "kill", time.Now()))
	})
}

// check compares the requests and callbacks with the runs in the ledger.
func (w *longWorker) check(t *testing.T, n *process, runs []run.Run) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for attempt, times := range w.sent {
		if times > 1 {
			t.Errorf("run and attempt %s were sent %d times", attempt, times)
		}
	}
	states, failed := map[string]int{}, 0
	for _, one := range runs {
		r := must[run.Run](t)(n.Run(t.Context(), one.ID))
		states[r.Job+" "+string(r.State)]++
		if r.State != run.Succeeded {
			t.Errorf("run %s is %s, want succeeded: %+v", r.ID, r.State, r.Attempts)
		}
		if w.between[r.ID] {
			t.Errorf("run %s was attempted after its target had completed it", r.ID)
		}
		for _, attempt := range r.Attempts {
			if attempt.Class == run.ClassCallback {
				failed++
			}
			states[string(attempt.State)+" "+string(attempt.Class)]++
		}
		if said := w.ended[r.ID]; slices.Contains(said, "fail") &&
			!slices.ContainsFunc(r.Attempts, func(a run.Attempt) bool { return a.Class == run.ClassCallback }) {
			t.Errorf("the target of run %s said that an attempt failed, and the ledger says %+v", r.ID, r.Attempts)
		}
	}
	t.Logf("%d runs: %v", len(runs), states)
	if failed == 0 || states["timed_out callback_timeout"] == 0 || states["lost other"] == 0 {
		t.Errorf("states = %v, want some that failed, timed out and were lost: the kills met none", states)
	}
}
