package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hostileVariable holds the configuration of the hostile process, as JSON.
const hostileVariable = "TENANTS_HOSTILE"

// hostileConfig is what the owner of the hostile app knows.
type hostileConfig struct {
	Token, Dawdler string // bound to its apps, and to one of them for slow connections
	Seed           uint64
	For            time.Duration
	Nodes          []string // addresses of their APIs
	Shared, Victim string   // URLs of the host that both apps call, and of the app's own receiver
	Runs           []string // of the app
}

// report has the actions of the hostile process and their results.
type report struct {
	Actions  map[string]map[string]int // by action and status
	Leaks    []string
	Arrivals int // requests at its own receiver
	Held     int // largest number of idle connections at once
}

// hostile is the owner of the hostile app.
type hostile struct {
	hostileConfig
	own    string // its receiver
	client *http.Client

	mu     sync.Mutex
	report report
	idle   int
	slow   map[string]int // open connections, by action
	// accepted are attempts that its receiver has accepted and will call back.
	accepted []acceptance

	// importing makes imports take turns, because they share an app.
	importing sync.Mutex
}

// hostileAddress is the source of its connections, so that limits per address do not affect the app's owner.
const hostileAddress = "127.0.0.66"

// runHostile runs all actions until its time is over, and writes a report.
func runHostile(ctx context.Context, out io.Writer) error {
	h := &hostile{report: report{Actions: map[string]map[string]int{}}, slow: map[string]int{}}
	if err := json.Unmarshal([]byte(os.Getenv(hostileVariable)), &h.hostileConfig); err != nil {
		return fmt.Errorf("%s: %w", hostileVariable, err)
	}
	server, own, err := listen(h.receive)
	if err != nil {
		return err
	}
	defer server.Close()
	h.own = own
	h.client = &http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: h.dial, MaxConnsPerHost: 32, MaxIdleConnsPerHost: 32},
	}
	ctx, cancel := context.WithTimeout(ctx, h.For)
	defer cancel()
	var all sync.WaitGroup
	for i, a := range actions() {
		for worker := range a.workers {
			random := rand.New(rand.NewPCG(h.Seed, uint64(100*i+worker))) //nolint:gosec // repeatable by its seed
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					a.do(h, ctx, random, n)
					_ = pause(ctx, a.every)
				}
			})
		}
	}
	all.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.Leaks = unique(h.report.Leaks)
	return json.NewEncoder(out).Encode(h.report)
}

func (h *hostile) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return h.dialAs(ctx, network, address, net.ParseIP(hostileAddress))
}

// dialAs dials from another address.
func (h *hostile) dialAs(ctx context.Context, network, address string, from net.IP) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext(ctx, network, address)
}

// did records an action and its outcome.
func (h *hostile) did(action, outcome string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.report.Actions[action] == nil {
		h.report.Actions[action] = map[string]int{}
	}
	h.report.Actions[action][outcome]++
}

func (h *hostile) leak(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.Leaks = append(h.report.Leaks, fmt.Sprintf(format, args...))
}

// look searches a text for data that the hostile app must not get.
func (h *hostile) look(where, text string) {
	for _, mark := range marks() {
		if strings.Contains(text, mark) {
			h.leak("got %s in %s", mark, where)
		}
	}
}

// ask sends a request to a node, with the token unless a header replaces it.
func (h *hostile) ask(ctx context.Context, random *rand.Rand, action, method, path, body string, headers ...string) (int, string) {
	url := "http://" + h.Nodes[random.IntN(len(h.Nodes))] + path
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		h.did(action, "error")
		return 0, ""
	}
	request.Header.Set("Authorization", "Bearer "+h.Token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := h.client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			h.did(action, "error")
		}
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body) // a partial body is searched, too
	h.did(action, strconv.Itoa(response.StatusCode))
	h.look("the response to "+method+" "+nameless(path), string(text))
	return response.StatusCode, string(text)
}

// nameless removes the part of a path after runs, so that one leak is reported once.
func nameless(path string) string {
	if before, _, isRun := strings.Cut(path, "/v1/runs/"); isRun {
		return before + "/v1/runs/{run}"
	}
	path, _, _ = strings.Cut(path, "?")
	return path
}

// put creates or replaces a definition of the hostile app.
func (h *hostile) put(ctx context.Context, random *rand.Rand, action, path string, definition object) int {
	body, err := json.Marshal(definition)
	if err != nil {
		h.did(action, "error")
		return 0
	}
	status, _ := h.ask(ctx, random, action, "PUT", path, string(body), "If-None-Match: *")
	if status == http.StatusPreconditionFailed {
		status, _ = h.ask(ctx, random, action, "PUT", path, string(body), "If-Match: *")
	}
	return status
}

// receive is the hostile app's own receiver.
func (h *hostile) receive(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	h.mu.Lock()
	h.report.Arrivals++
	h.mu.Unlock()
	h.look("a request to its receiver", fmt.Sprint(q.URL, q.Header)+string(body))
	if strings.HasPrefix(q.Header.Get("Authorization"), "AWS4-") {
		h.leak("had a request signed as the node")
	}
	switch q.URL.Path {
	case "/slow":
		_ = pause(q.Context(), 10*time.Second)
	case "/accept":
		h.accept(q.Header)
		w.WriteHeader(http.StatusAccepted)
	case "/fail":
		w.WriteHeader(http.StatusInternalServerError)
	case "/redirect":
		http.Redirect(w, q, "http://169.254.169.254/latest/meta-data/", http.StatusTemporaryRedirect)
	case "/letters":
		_, _ = io.WriteString(w, strings.Repeat("a", 2048))
	case "/long":
		for range 1000 {
			if _, err := io.WriteString(w, strings.Repeat("x", 10_000)); err != nil {
				return
			}
		}
	default: // echo the request
		_, _ = fmt.Fprint(w, q.Header)
	}
}
