// Package worker helps to write a worker in Go: an HTTP server that registers itself in an endpoint group of
// Carillon and does the work of jobs. A job is handled by a [lambda.Handler], so the same code can be a
// Lambda function or a worker, and [lambda.Once] and [lambda.Fenced] work here, too.
//
// A [Worker] registers, sends heartbeats, checks the signature of each request, reports its health and load,
// and stops gracefully: it leaves its group first and then finishes the requests in flight.
package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-dev/carillon/lambda"
)

// Options configures a worker and its registration.
type Options struct {
	// API is the URL of Carillon's API, such as https://carillon.internal:8080.
	API string
	// Token is an API token with the scope register, bound to App.
	Token string
	// App and Group are the names of an app and of an endpoint group of it that takes registrations.
	App, Group string
	// ID is the name of the worker in its group, unique there: 1 to 63 letters, digits, _ and -, in lower case. Empty means
	// the name of the machine, up to the first dot.
	ID string
	// URL is where nodes reach the worker: http or https, with a port that the registration of the group allows.
	URL string
	// Weight is the worker's share with weighted strategies, 1 to 100; 0 means 1.
	Weight int
	// Backup workers get requests only while no other is up.
	Backup bool
	// Labels tell workers apart, for people and programs.
	Labels map[string]string

	// SigningSecrets are the secrets (whsec_...) with which the group signs requests. A request
	// must be signed with one of them. Use two while you replace one.
	SigningSecrets []string
	// Unsigned accepts requests without a signature check, from any client that reaches the worker.
	// Set either Unsigned or SigningSecrets.
	Unsigned bool
	// Concurrency is how many requests the worker handles at once; it responds 503 to more. 0 means no limit.
	Concurrency int
	// StopTimeout bounds how long a stopping worker waits for requests in flight; 0 means 30s. Then
	// it ends the contexts of their handlers.
	StopTimeout time.Duration

	// Client sends the requests to the API; nil means a client with a timeout of 10 s.
	Client *http.Client
	// Log receives registrations, failures and panics; nil means slog.Default.
	Log *slog.Logger
}

// Worker does the work of jobs. Handle first, then serve requests by ServeHTTP, and then Run. It is safe for concurrent use.
type Worker struct {
	o          Options
	signatures []*standardwebhooks.Webhook
	stopping   chan struct{} // closed when the worker begins to leave its group
	over       chan struct{} // closed when handlers must end

	mu       sync.Mutex
	handlers map[string]lambda.Handler
	running  map[string]int // by job
	count    int            // the sum of running
	idle     chan struct{}  // closed when count falls to 0 while Run waits for it; nil otherwise
}

const (
	defaultStopTimeout = 30 * time.Second
	requestTimeout     = 10 * time.Second
	mostEndpointWeight = 100
)

var endpointID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// New returns a worker. The error lists every problem of the options.
func New(o Options) (*Worker, error) {
	host, _ := os.Hostname() // if it fails, check reports the missing ID
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	o.ID = cmp.Or(o.ID, host)
	o.StopTimeout = cmp.Or(o.StopTimeout, defaultStopTimeout)
	if o.Client == nil {
		o.Client = &http.Client{Timeout: requestTimeout}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.API = strings.TrimSuffix(o.API, "/")
	w := &Worker{
		o: o, stopping: make(chan struct{}), over: make(chan struct{}),
		handlers: map[string]lambda.Handler{}, running: map[string]int{},
	}
	problems := o.check()
	for i, secret := range o.SigningSecrets {
		signature, err := standardwebhooks.NewWebhook(secret)
		if err != nil { // the error may contain the secret
			problems = append(problems, fmt.Errorf("SigningSecrets[%d] is not a secret of Standard Webhooks, whsec_ and base64", i))
			continue
		}
		w.signatures = append(w.signatures, signature)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("worker: %w", errors.Join(problems...))
	}
	return w, nil
}

func (o Options) check() (problems []error) {
	for name, text := range map[string]string{"API": o.API, "URL": o.URL} {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			problems = append(problems, fmt.Errorf("%s is not a URL such as https://host:8080, without user name and password", name))
		}
	}
	for name, text := range map[string]string{"App": o.App, "Group": o.Group, "ID": o.ID} {
		if !endpointID.MatchString(text) {
			problems = append(problems, fmt.Errorf("%s %q is not 1 to 63 letters, digits, _ and -, in lower case", name, text))
		}
	}
	if o.Token == "" {
		problems = append(problems, errors.New("the Token is missing; make one with the scope register"))
	}
	if o.Unsigned == (len(o.SigningSecrets) > 0) {
		problems = append(problems, errors.New("set either SigningSecrets, or Unsigned to accept requests of anybody who reaches the worker"))
	}
	if o.Weight < 0 || o.Weight > mostEndpointWeight {
		problems = append(problems, fmt.Errorf("the Weight %d is not between 1 and %d, or 0", o.Weight, mostEndpointWeight))
	}
	if o.Concurrency < 0 || o.StopTimeout < 0 {
		problems = append(problems, errors.New("a Concurrency and a StopTimeout cannot be negative"))
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

// Handle sets the handler of a job, by its name. It panics if the job already has one.
func (w *Worker) Handle(job string, handler lambda.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handlers[job] != nil {
		panic("worker: job " + job + " has a handler already")
	}
	w.handlers[job] = handler
}

// eventOf decodes a request of Carillon. Without a payload its body describes the fire, as the headers also do.
func eventOf(header http.Header, body []byte) (lambda.Event, error) {
	fire := lambda.Fire{
		EventID: header.Get("Webhook-Id"), App: header.Get("Carillon-App"), Job: header.Get("Carillon-Job"),
		Trigger: header.Get("Carillon-Trigger"), Run: header.Get("Carillon-Run"), Kind: header.Get("Carillon-Kind"),
		Traceparent: header.Get("Traceparent"),
		Callback: lambda.Callback{URL: header.Get("Carillon-Callback-URL"), Token: header.Get("Carillon-Callback-Token"),
			Timeout: header.Get("Carillon-Callback-Timeout")},
	}
	if state := header.Get("Carillon-State"); state != "" {
		fire.State = json.RawMessage(state)
	}
	var err error
	if fire.ScheduledAt, err = time.Parse(time.RFC3339, header.Get("Carillon-Scheduled-At")); err != nil {
		return lambda.Event{}, err
	}
	if fire.Attempt, err = strconv.Atoi(header.Get("Carillon-Attempt")); err != nil {
		return lambda.Event{}, err
	}
	if fire.Fence, err = strconv.ParseInt(header.Get("Carillon-Fence"), 10, 64); err != nil {
		return lambda.Event{}, err
	}
	if header.Get("Carillon-Missed-Count") != "" {
		if fire.Missed, err = missedOf(header); err != nil {
			return lambda.Event{}, err
		}
	}
	if header.Get("Carillon-Shard-Total") != "" {
		if fire.ShardIndex, fire.ShardTotal, err = shardOf(header); err != nil {
			return lambda.Event{}, err
		}
	}
	if on := header.Get("Carillon-Parent-Event"); on != "" {
		fire.Cause = &lambda.Cause{
			Run: header.Get("Carillon-Parent-Run"), On: on, State: header.Get("Carillon-Parent-State"),
			Class: header.Get("Carillon-Parent-Class"), Error: header.Get("Carillon-Parent-Error"),
		}
	}
	event := lambda.Event{Carillon: fire}
	if !describes(body, fire) {
		event.Payload = body
	}
	return event, nil
}

// shardOf returns the shard of a broadcast that a request is for.
func shardOf(header http.Header) (index, total int, err error) {
	if index, err = strconv.Atoi(header.Get("Carillon-Shard-Index")); err == nil {
		total, err = strconv.Atoi(header.Get("Carillon-Shard-Total"))
	}
	if err == nil && (index < 0 || index >= total) {
		err = fmt.Errorf("shard %d of %d: the index is from 0 to the total - 1", index, total)
	}
	return index, total, err
}

func missedOf(header http.Header) (*lambda.Missed, error) {
	from, err := time.Parse(time.RFC3339, header.Get("Carillon-Missed-From"))
	if err != nil {
		return nil, err
	}
	to, err := time.Parse(time.RFC3339, header.Get("Carillon-Missed-To"))
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(header.Get("Carillon-Missed-Count"))
	return &lambda.Missed{From: from, To: to, Count: count}, err
}

// describes reports whether a body is the description of a fire, which a job without a payload sends.
func describes(body []byte, fire lambda.Fire) bool {
	var text struct {
		App string `json:"app"`
		Job string `json:"job"`
		Run string `json:"run"`
	}
	return len(body) == 0 ||
		json.Unmarshal(body, &text) == nil && text.Run == fire.Run && text.App == fire.App && text.Job == fire.Job
}
