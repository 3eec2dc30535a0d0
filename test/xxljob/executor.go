package main

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// trigger is the body of /run.
type trigger struct {
	JobID           int32  `json:"jobId"`
	Handler         string `json:"executorHandler"`
	Params          string `json:"executorParams"`
	BlockStrategy   string `json:"executorBlockStrategy"`
	TimeoutSeconds  int    `json:"executorTimeout"`
	LogID           int64  `json:"logId"`
	LogDateTime     int64  `json:"logDateTime"`
	GlueType        string `json:"glueType"`
	BroadcastIndex  int    `json:"broadcastIndex"`
	BroadcastTotal  int    `json:"broadcastTotal"`
	GlueSource      string `json:"glueSource"`
	GlueUpdatedTime int64  `json:"glueUpdatetime"`
}

// executor is the server that the scheduler calls. It has a thread for each job that was run.
type executor struct {
	token string
	logs  logs
	admin *admin

	mu      sync.Mutex
	threads map[int32]*thread
}

// ServeHTTP serves the protocol: POST, the token, and JSON with a code.
func (e *executor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html;charset=UTF-8") // like XXL-JOB's own executors
	_ = json.NewEncoder(w).Encode(e.respond(r))
}

func (e *executor) respond(r *http.Request) reply {
	if r.Method != http.MethodPost {
		return failure("invalid request, HttpMethod not support.")
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("XXL-JOB-ACCESS-TOKEN")), []byte(e.token)) != 1 {
		return failure("The access token is wrong.")
	}
	switch r.URL.Path {
	case "/beat":
		return reply{Code: codeSuccess}
	case "/idleBeat":
		return asked(r, func(job struct {
			ID int32 `json:"jobId"`
		},
		) reply {
			return e.idleBeat(job.ID)
		})
	case "/run":
		return asked(r, e.run)
	case "/kill":
		return asked(r, func(job struct {
			ID int32 `json:"jobId"`
		},
		) reply {
			return e.kill(job.ID)
		})
	case "/log":
		return asked(r, e.logs.read)
	}
	return failure("invalid request, uri-mapping(" + r.URL.Path + ") not found.")
}

// asked responds to a request with a T as its body.
func asked[T any](r *http.Request, respond func(T) reply) reply {
	var body T
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return failure("request error: " + err.Error())
	}
	return respond(body)
}

func failure(why string) reply { return reply{Code: codeFailure, Msg: why} }

func (e *executor) idleBeat(job int32) reply {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.threads[job]; t != nil && t.busy() {
		return failure("job thread is running or has trigger queue.")
	}
	return reply{Code: codeSuccess}
}

// run queues a run in the thread of its job, by the block strategy.
func (e *executor) run(of trigger) reply {
	handler, known := handlers[of.Handler]
	switch {
	case of.GlueType != "BEAN":
		return failure("glueType[" + of.GlueType + "] is not valid.")
	case !known:
		return failure("job handler [" + of.Handler + "] not found.")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.threads[of.JobID]
	if t != nil && t.busy() {
		switch of.BlockStrategy {
		case "DISCARD_LATER":
			return failure("block strategy effect: Discard Later")
		case "COVER_EARLY":
			t.stop("block strategy effect: Cover Early")
			t = nil
		case "SERIAL_EXECUTION":
		default:
			return failure("block strategy " + of.BlockStrategy + " is not one of the protocol")
		}
	}
	if t == nil {
		t = newThread(e)
		e.threads[of.JobID] = t
	}
	if !t.push(queued{of, handler}) {
		return failure(fmt.Sprintf("repeate trigger job, logId:%d", of.LogID))
	}
	return reply{Code: codeSuccess}
}

func (e *executor) kill(job int32) reply {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.threads[job]
	if t == nil {
		return reply{Code: codeSuccess, Msg: "job thread already killed."}
	}
	delete(e.threads, job)
	t.stop("scheduling center kill job.")
	return reply{Code: codeSuccess}
}

// stopAll stops all threads and waits for them.
func (e *executor) stopAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.threads {
		t.stop("web container destroy and kill the job.")
		<-t.ended
	}
}
