package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// executorRun is a run of executors that a node has just begun, and the number of its attempt.
func (w *world) executorRun() (r run.Run, held run.HeldRun, logID int64) {
	w.t.Helper()
	r = into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	return r, w.adoptRun(), run.ExecutorLogID(r.EventID, 1)
}

// acceptAs records that an executor accepted a run.
func (w *world) acceptAs(held run.HeldRun, logID int64) {
	w.t.Helper()
	w.record(held, run.WaitingCallback, &dispatcher.NextAttempt{
		At: time.Now().Add(time.Hour), Callback: &run.Callback{ID: logID, Group: "billing", Within: time.Hour},
	})
}

// newCallbackWorld is a world whose job is one of executors.
func newCallbackWorld(t *testing.T) *world {
	t.Helper()
	w := newExecutorWorld(t, gate.Limits{})
	w.register(t.Context(), 7)
	w.must(http.StatusOK, "PUT", oneJob, jobOfExecutors)
	return w
}

func (w *world) stateOf(r run.Run) run.Run {
	w.t.Helper()
	return into[run.Run](w.must(http.StatusOK, "GET", "/v1/runs/"+r.ID, ""))
}

func TestCallbackOfAnExecutorEndsItsRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		result string
		state  run.State
	}{
		"success":                   {`"logDateTim":1,"handleCode":200,"handleMsg":"42 rows"`, run.Succeeded},
		"success, no message":       {`"handleCode":200,"handleMsg":null`, run.Succeeded},
		"success until 2.2":         {`"executeResult":{"code":200,"msg":null}`, run.Succeeded},
		"failure":                   {`"handleCode":500,"handleMsg":"disk full"`, run.WaitingCallback}, // a node records it
		"failure until 2.2":         {`"executeResult":{"code":500,"msg":"disk full"}`, run.WaitingCallback},
		"failure, long message":     {`"handleCode":502,"handleMsg":"` + strings.Repeat("ä", 50_000) + `"`, run.WaitingCallback},
		"members of later versions": {`"handleCode":200,"jobId":3,"logDateTime":1`, run.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCallbackWorld(t)
			r, held, id := w.executorRun()
			w.acceptAs(held, id)
			body := fmt.Sprintf(`[{"logId":%d,%s}]`, id, tt.result)
			for range 2 { // executors repeat callbacks without a response
				if code, msg := w.executor(executorBase+"/callback", body, executorToken); code != 200 {
					t.Errorf("callback: %d %s", code, msg)
				}
			}
			if got := w.stateOf(r).State; got != tt.state {
				t.Errorf("run is %s, want %s", got, tt.state)
			}
			now := time.Now()
			due, err := w.store.NextRetry(t.Context(), time.Time{}, now)
			if failed := tt.state != run.Succeeded; err != nil || failed && due.Next.After(now) {
				t.Errorf("next retry = %+v, %v, want it due: %v", due, err, failed)
			}
			if code, msg := w.executor(executorBase+"/callback", fmt.Sprintf(`[{"logId":%d,"handleCode":200}]`, id), executorToken); code != 200 {
				t.Errorf("a success after that: %d %s", code, msg)
			}
		})
	}
}

// Executors send code 502 if a handler took longer than its time-out, in either version of the protocol.
func TestCallbackDistinguishesTimeOutsFromFailures(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]bool{
		`"handleCode":502,"handleMsg":"job execute timeout"`:           true,
		`"executeResult":{"code":502,"msg":"job execute timeout"}`:     true,
		`"handleCode":500,"handleMsg":"job execute timeout, code 502"`: false,
		`"handleCode":503`: false,
	} {
		w := newCallbackWorld(t)
		_, held, id := w.executorRun()
		w.acceptAs(held, id)
		if code, msg := w.executor(executorBase+"/callback", fmt.Sprintf(`[{"logId":%d,%s}]`, id, result), executorToken); code != 200 {
			t.Fatalf("callback: %d %s", code, msg)
		}
		query := dispatcher.AdoptQuery{Node: 7, Token: 71, Limit: 10, Retries: true}
		found, err := w.store.Adoptable(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := w.store.Adopt(t.Context(), query, found)
		if err != nil || len(adopted) != 1 || adopted[0].Accepted == nil {
			t.Fatalf("%s: adopted %v, %v, want the run", result, adopted, err)
		}
		if got := adopted[0].Accepted; !got.Failed || got.TimedOut != want || got.Message == "" {
			t.Errorf("%s: %+v, want it failed, timed out: %v", result, got, want)
		}
	}
}

func TestCallbackWaitsForTheRecordOfItsRun(t *testing.T) {
	t.Parallel()
	w := newCallbackWorld(t)
	first, held, id := w.executorRun()
	w.acceptAs(held, id)
	second, late, lateID := w.executorRun()
	came, began := make(chan string), time.Now()
	var took time.Duration
	go func() {
		code, msg := w.executor(executorBase+"/callback",
			fmt.Sprintf(`[{"logId":%d,"handleCode":200},{"logId":%d,"handleCode":200}]`, lateID, id), executorToken)
		ended := time.Now()
		took = ended.Sub(began)
		came <- fmt.Sprint(code, " ", msg)
	}()
	waiting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for w.read(first).State != run.Succeeded {
		if waiting.Err() != nil {
			t.Fatal("the result that has its run is not taken")
		}
	}
	w.acceptAs(late, lateID)
	if got := <-came; got != "200 " {
		if took < api.CallbackPatience {
			t.Errorf("callback after %s: %s, want it to wait for %s", took, got, api.CallbackPatience)
		}
		// If the machine is slow, the callback was refused before that. The executor repeats it.
		if code, msg := w.executor(executorBase+"/callback", fmt.Sprintf(`[{"logId":%d,"handleCode":200}]`, lateID), executorToken); code != 200 {
			t.Errorf("callback once more: %d %s", code, msg)
		}
	}
	if got := w.stateOf(second).State; got != run.Succeeded {
		t.Errorf("run is %s, want it succeeded", got)
	}
}

// read reads a run from the store, so that another goroutine may use the API.
func (w *world) read(run run.Run) run.Run {
	w.t.Helper()
	read, err := w.store.Run(w.t.Context(), run.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return read
}

func TestCallbackWithoutAWaitingRunIsRepeated(t *testing.T) {
	t.Parallel()
	w := newCallbackWorld(t)
	if code, msg := w.executor(executorBase+"/callback", `[]`, executorToken); code != 200 {
		t.Errorf("no results: %d %s", code, msg)
	}
	r, held, id := w.executorRun()
	w.acceptAs(held, id)
	// The executors of another group of the app with the same token end no run of this group.
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm/groups/others", validXXLGroup)
	body := fmt.Sprintf(`[{"logId":%d,"handleCode":200}]`, id)
	if code, msg := w.executor("/xxl-job/crm/others/api/callback", body, executorToken); code != 500 ||
		!strings.Contains(msg, fmt.Sprintf("no run waits for 1 of the results, beginning with log %d", id)) {
		t.Errorf("callback of others: %d %s", code, msg)
	}
	if got := w.stateOf(r).State; got != run.WaitingCallback {
		t.Errorf("run is %s, want it to wait", got)
	}
	many := "[" + strings.Repeat(`{"logId":1},`, 1000) + `{"logId":1}]`
	if code, msg := w.executor(executorBase+"/callback", many, executorToken); code != 500 || !strings.Contains(msg, "the maximum is 1000") {
		t.Errorf("too many: %d %s", code, msg)
	}
	if code, msg := w.executor(executorBase+"/callback", `{}`, executorToken); code != 500 || !strings.Contains(msg, "not the JSON") {
		t.Errorf("no list: %d %s", code, msg)
	}
}

func TestResultOfAJobThatHasChangedIsTaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"deleted": func(w *world) { w.must(http.StatusNoContent, "DELETE", oneJob, "") },
		"moved": func(w *world) {
			w.must(http.StatusCreated, "PUT", "/v1/apps/crm/groups/others", validXXLGroup)
			w.must(http.StatusOK, "PUT", oneJob, strings.Replace(jobOfExecutors, "billing", "others", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCallbackWorld(t)
			r, held, id := w.executorRun()
			w.acceptAs(held, id)
			change(w)
			if code, msg := w.executor(executorBase+"/callback", fmt.Sprintf(`[{"logId":%d,"handleCode":200}]`, id), executorToken); code != 200 {
				t.Errorf("callback: %d %s", code, msg)
			}
			if got := w.stateOf(r).State; got != run.Succeeded {
				t.Errorf("run is %s, want it succeeded", got)
			}
		})
	}
}

// runLookups counts the look-ups of runs by the numbers of their attempts.
type runLookups struct {
	*store.Store
	count atomic.Int64
}

// AwaitedAttempt counts.
func (l *runLookups) AwaitedAttempt(ctx context.Context, app string, id int64) (run.AwaitedAttempt, error) {
	l.count.Add(1)
	return l.Store.AwaitedAttempt(ctx, app, id)
}

func TestCallbackLooksUpFewRunsTwice(t *testing.T) {
	t.Parallel()
	w := newCallbackWorld(t)
	counted := &runLookups{Store: w.store}
	w.api = api.New(counted, api.Options{Executors: newExecutors(t), Logger: slog.New(slog.DiscardHandler)})
	r, held, id := w.executorRun()
	w.acceptAs(held, id)
	end := fmt.Sprintf(`[{"logId":%d,"handleCode":200}]`, id)
	for n, says := range []string{"takes it", "knows that it is over"} {
		if code, msg := w.executor(executorBase+"/callback", end, executorToken); code != 200 || counted.count.Load() != int64(n+1) {
			t.Errorf("callback that %s: %d %s after %d look-ups, want 200 after %d", says, code, msg, counted.count.Load(), n+1)
		}
	}
	if got := w.stateOf(r).State; got != run.Succeeded {
		t.Errorf("run is %s, want it succeeded", got)
	}
	counted.count.Store(0)
	var strays []string
	for n := range 1000 {
		strays = append(strays, fmt.Sprintf(`{"logId":%d,"handleCode":200}`, n+1))
	}
	code, msg := w.executor(executorBase+"/callback", "["+strings.Join(strays, ",")+"]", executorToken)
	if code != 500 || !strings.Contains(msg, "no run waits for 1000 of the results") {
		t.Errorf("callback of 1000 strays: %d %s, want all to be repeated", code, msg)
	}
	if got := counted.count.Load(); got > 1400 {
		t.Errorf("callback of 1000 strays: %d look-ups, want 100 of them again at most four times", got)
	}
}
