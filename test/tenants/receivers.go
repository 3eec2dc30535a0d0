package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Data that only the app may see or use. The test searches for them in all data that the hostile app gets.
const (
	envMark      = "mark-in-a-variable-7f3a"
	fileMark     = "mark-in-a-file-91cc"
	storedMark   = "mark-in-the-database-d20e"
	responseMark = "mark-in-a-response-55b1"
	payloadMark  = "mark-in-a-payload-c813"
	nodeMark     = "mark-of-the-nodes-credentials-0d4f"
	functionMark = "mark-of-a-function-e6aa"
)

func marks() []string {
	return []string{envMark, fileMark, storedMark, responseMark, payloadMark, nodeMark, functionMark}
}

// arrival identifies a fire of the app.
type arrival struct {
	job, trigger string
	due          int64 // Unix milliseconds
}

// receivers are the servers that the app calls: its own, a shared one that the hostile app calls,
// too, and a fake AWS. They record requests that do not belong there.
type receivers struct {
	own, shared, aws string // URLs
	servers          []*http.Server
	ended            chan struct{}

	mu       sync.Mutex
	arrivals map[arrival]time.Time      // the first request of each fire
	queued   map[string]map[string]bool // event ids of queued runs, by job
	touched  []string
}

func newReceivers() (*receivers, error) {
	r := &receivers{ended: make(chan struct{}), arrivals: map[arrival]time.Time{}, queued: map[string]map[string]bool{}}
	for url, handler := range map[*string]http.HandlerFunc{&r.own: r.serveOwn, &r.shared: r.serveShared, &r.aws: r.serveAWS} {
		server, at, err := listen(handler)
		if err != nil {
			r.close()
			return nil, err
		}
		*url = at
		r.servers = append(r.servers, server)
	}
	return r, nil
}

func listen(handler http.HandlerFunc) (*http.Server, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is bound at once or never
	if err != nil {
		return nil, "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with close
	return server, "http://" + listener.Addr().String(), nil
}

func (r *receivers) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touched = append(r.touched, fmt.Sprintf(format, args...))
}

// arrive records a fire.
func (r *receivers) arrive(h http.Header) {
	due, err := time.Parse(time.RFC3339Nano, h.Get("carillon-scheduled-at"))
	if err != nil {
		return // a manual run
	}
	key := arrival{h.Get("carillon-job"), h.Get("carillon-trigger"), due.UnixMilli()}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, repeated := r.arrivals[key]; !repeated {
		r.arrivals[key] = now
	}
}

// arriveQueued records a queued run.
func (r *receivers) arriveQueued(h http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := h.Get("carillon-job")
	if r.queued[job] == nil {
		r.queued[job] = map[string]bool{}
	}
	r.queued[job][h.Get("webhook-id")] = true
}

// countQueued returns how many runs of a queued job have arrived.
func (r *receivers) countQueued(job string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queued[job])
}

// countOf returns how many fires of a job have arrived.
func (r *receivers) countOf(job string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for fire := range r.arrivals {
		if fire.job == job {
			n++
		}
	}
	return n
}

// serveOwn is the app's receiver. The hostile app may call it, like any client, but not with its secrets.
func (r *receivers) serveOwn(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	key := q.Header.Get("X-Key")
	if q.Header.Get("carillon-app") != appName {
		for _, mark := range marks() {
			if strings.Contains(fmt.Sprint(q.URL, q.Header)+string(body), mark) {
				r.note("sent %s to the app's receiver", mark)
			}
		}
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if want := map[string]string{"/env": envMark, "/file": fileMark, "/stored": storedMark}[q.URL.Path]; key != want {
		r.note("had job %s of the app send %q instead of its secret", q.Header.Get("carillon-job"), key)
	}
	if q.URL.Path == "/queued" {
		r.arriveQueued(q.Header)
	} else {
		r.arrive(q.Header)
	}
	_, _ = io.WriteString(w, responseMark)
}

// serveShared is a host where only the paths of the app work.
func (r *receivers) serveShared(w http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body)
	switch {
	case q.Header.Get("carillon-app") == appName && q.URL.Path == "/good":
		r.arrive(q.Header)
	case q.URL.Path == "/hang" || q.URL.Path == "/good":
		select {
		case <-q.Context().Done():
		case <-r.ended:
		}
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// serveAWS serves Lambda and STS.
func (r *receivers) serveAWS(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	switch {
	case !strings.HasSuffix(q.URL.Path, "/invocations"):
		if strings.Contains(string(body), "AssumeRole") {
			r.note("assumed a role as the node: %.200s", body)
		}
		w.WriteHeader(http.StatusForbidden)
	case strings.Contains(string(body), payloadMark) && strings.Contains(q.URL.Path, functionName):
		_, _ = io.WriteString(w, `"`+functionMark+`"`)
	default:
		r.note("invoked %s", q.URL.Path)
		_, _ = io.WriteString(w, `"`+functionMark+`"`)
	}
}

// lateness returns how late, in milliseconds, the app's fires in [from, until) were.
func (r *receivers) lateness(from, until time.Time) (late []float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for fire, arrived := range r.arrivals {
		if due := time.UnixMilli(fire.due); !due.Before(from) && due.Before(until) {
			late = append(late, milliseconds(arrived.Sub(due)))
		}
	}
	return late
}

func (r *receivers) close() {
	close(r.ended)
	for _, server := range r.servers {
		_ = server.Close()
	}
}
