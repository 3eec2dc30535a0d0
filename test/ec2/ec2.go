// Package ec2 serves an instance of an autoscaling group: its metadata service, with IMDSv2 only,
// and the Query API of Auto Scaling. Both speak the real protocols and fail like the real ones.
package ec2

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Instance is the metadata service of an instance.
type Instance struct {
	*httptest.Server
	mu     sync.Mutex
	data   map[string]string // by path below latest/meta-data
	tokens map[string]time.Time
	drawn  int
	failed int           // number of further requests that fail
	asked  []string      // paths, in order
	looked chan struct{} // buffered for one: a path was requested
}

// ID, Group and Hook are the names of the only instance.
const (
	ID    = "i-0123456789abcdef0"
	Group = "carillon"
	Hook  = "drain"
)

// NewInstance serves the metadata of an instance in service.
func NewInstance() *Instance {
	i := &Instance{tokens: map[string]time.Time{}, looked: make(chan struct{}, 1), data: map[string]string{
		"instance-id": ID, "placement/region": "eu-central-1", "autoscaling/target-lifecycle-state": "InService",
	}}
	i.Server = httptest.NewServer(http.HandlerFunc(i.serve))
	return i
}

// Set changes the text under a path; an empty text removes it.
func (i *Instance) Set(path, text string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.data[path] = text; text == "" {
		delete(i.data, path)
	}
}

// Revoke invalidates all tokens, like a restart of the service.
func (i *Instance) Revoke() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.tokens)
}

// Fail makes the next requests fail with status 500.
func (i *Instance) Fail(requests int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failed = requests
}

// Failing returns the number of further requests that fail.
func (i *Instance) Failing() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failed
}

// Tokens returns the number of issued tokens.
func (i *Instance) Tokens() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.drawn
}

// Asked returns how often a path was read with a valid token.
func (i *Instance) Asked(path string) (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, asked := range i.asked {
		if asked == path {
			n++
		}
	}
	return n
}

// Looked signals reads.
func (i *Instance) Looked() <-chan struct{} { return i.looked }

func (i *Instance) serve(w http.ResponseWriter, q *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failed > 0 {
		i.failed--
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	if q.Method == http.MethodPut && q.URL.Path == "/latest/api/token" {
		ttl, err := strconv.Atoi(q.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		if err != nil || ttl < 1 || ttl > 21600 {
			http.Error(w, "bad ttl", http.StatusBadRequest)
			return
		}
		token := rand.Text()
		i.tokens[token] = time.Now().Add(time.Duration(ttl) * time.Second)
		i.drawn++
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", strconv.Itoa(ttl))
		fmt.Fprint(w, token)
		return
	}
	if expires, ok := i.tokens[q.Header.Get("X-Aws-Ec2-Metadata-Token")]; !ok || time.Now().After(expires) {
		http.Error(w, "401 - Unauthorized", http.StatusUnauthorized) // IMDSv1 sends no token
		return
	}
	path := strings.TrimPrefix(q.URL.Path, "/latest/meta-data/")
	i.asked = append(i.asked, path)
	select {
	case i.looked <- struct{}{}:
	default:
	}
	text, ok := i.data[path]
	if !ok || q.Method != http.MethodGet {
		http.Error(w, "404 - Not Found", http.StatusNotFound)
		return
	}
	fmt.Fprint(w, text)
}

// AutoScaling is the Query API of Auto Scaling, with the lifecycle action of one instance.
type AutoScaling struct {
	*httptest.Server
	mu      sync.Mutex
	waiting bool
	errors  []Error // of the next requests
	calls   []string
	called  chan struct{}
}

// Error is a response of the API.
type Error struct {
	Status        int
	Code, Message string
}

// The errors of the API.
func (a *AutoScaling) noAction() Error {
	return Error{http.StatusBadRequest, "ValidationError", "No active Lifecycle Action found with instance ID " + ID}
}

// Throttled is the error of too many requests.
func Throttled() Error { return Error{http.StatusBadRequest, "Throttling", "Rate exceeded"} }

// Denied is the error of a role without the right.
func Denied() Error {
	return Error{http.StatusForbidden, "AccessDenied", "User is not authorized to perform: autoscaling:CompleteLifecycleAction"}
}

// Unavailable is the error of an API that is down.
func Unavailable() Error {
	return Error{http.StatusServiceUnavailable, "ServiceUnavailable", "Service is unable to handle request."}
}

// NewAutoScaling serves the API. If waiting is true, a lifecycle action of the instance waits.
func NewAutoScaling(waiting bool, errors ...Error) *AutoScaling {
	a := &AutoScaling{waiting: waiting, errors: errors, called: make(chan struct{}, 1)}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	return a
}

// Calls returns the called actions, in order, each with "error" if it failed.
func (a *AutoScaling) Calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// Called signals a call.
func (a *AutoScaling) Called() <-chan struct{} { return a.called }

func (a *AutoScaling) serve(w http.ResponseWriter, q *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		select {
		case a.called <- struct{}{}:
		default:
		}
	}()
	action, problem := a.act(q)
	if problem != nil {
		a.calls = append(a.calls, action+" error")
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(problem.Status)
		fmt.Fprintf(w, `<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><Error><Type>Sender</Type><Code>%s</Code>`+
			`<Message>%s</Message></Error><RequestId>7c6e177f</RequestId></ErrorResponse>`, problem.Code, problem.Message)
		return
	}
	a.calls = append(a.calls, action)
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, `<%[1]sResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><%[1]sResult/>`+
		`<ResponseMetadata><RequestId>7c6e177f</RequestId></ResponseMetadata></%[1]sResponse>`, action)
}

// act executes one request.
func (a *AutoScaling) act(q *http.Request) (action string, problem *Error) {
	if err := q.ParseForm(); err != nil || q.Method != http.MethodPost || q.PostForm.Get("Version") != "2011-01-01" {
		return "?", &Error{http.StatusBadRequest, "InvalidAction", "not a request of the Query API"}
	}
	form := q.PostForm
	action = form.Get("Action")
	if !strings.Contains(q.Header.Get("Authorization"), "/eu-central-1/autoscaling/aws4_request") {
		return action, &Error{http.StatusForbidden, "IncompleteSignature", "not signed for this region and service"}
	}
	if len(a.errors) > 0 {
		next := a.errors[0]
		a.errors = a.errors[1:]
		return action, &next
	}
	if form.Get("AutoScalingGroupName") != Group || form.Get("LifecycleHookName") != Hook || form.Get("InstanceId") != ID || !a.waiting {
		none := a.noAction()
		return action, &none
	}
	switch action {
	case "RecordLifecycleActionHeartbeat":
	case "CompleteLifecycleAction":
		if result := form.Get("LifecycleActionResult"); result != "CONTINUE" {
			return action, &Error{http.StatusBadRequest, "ValidationError", "unexpected result " + result}
		}
		a.waiting = false
	default:
		return action, &Error{http.StatusBadRequest, "InvalidAction", action}
	}
	return action, nil
}

// Environment returns the variables of a program on the instance: the addresses of both services, and credentials.
func Environment(i *Instance, a *AutoScaling) []string {
	return []string{
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + i.URL, "AWS_ENDPOINT_URL_AUTO_SCALING=" + a.URL,
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
}
