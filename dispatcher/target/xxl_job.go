package target

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// XXLJobRun is a run for an executor of a group of kind xxl_job.
type XXLJobRun struct {
	// Handler is the name of a JobHandler (BEAN mode) of the executors.
	Handler string `json:"handler" schema:"required,max=255"`
	// Param is the parameter of the run, which may be a template. If empty, it is the payload; a JSON string is sent
	// without its quotes.
	Param string `json:"param,omitempty" schema:"max=262144"`
	// Blocking is the policy of an executor that runs the job already; empty means queue.
	Blocking ExecutorBlocking `json:"blocking,omitempty"`
	// ExecutorTimeout is after how long the executor interrupts a run, in whole seconds; 0 means never.
	ExecutorTimeout input.Duration `json:"executor_timeout,omitempty" schema:"default=0s"`
	// CallbackTimeout is how long after accepting a run an executor may call back; 0 means DefaultCallbackTimeout.
	CallbackTimeout input.Duration `json:"callback_timeout,omitempty" schema:"default=1h"`
}

// ExecutorBlocking is the policy of an executor for a run of a job that it runs already.
type ExecutorBlocking string

// The kinds of blocking. The words are those of concurrency policies, which count over all executors.
const (
	BlockingQueue   ExecutorBlocking = "queue"   // it waits on the executor: SERIAL_EXECUTION
	BlockingForbid  ExecutorBlocking = "forbid"  // the executor refuses it: DISCARD_LATER
	BlockingReplace ExecutorBlocking = "replace" // the executor stops the earlier one: COVER_EARLY
)

// ExecutorBlockings are all kinds of blocking.
var ExecutorBlockings = []ExecutorBlocking{BlockingQueue, BlockingForbid, BlockingReplace}

// blockStrategies are the words of XXL-JOB.
var blockStrategies = map[ExecutorBlocking]string{
	BlockingQueue: "SERIAL_EXECUTION", BlockingForbid: "DISCARD_LATER", BlockingReplace: "COVER_EARLY",
}

// SetDefaults gives a decoded run the values of fields that its JSON leaves out.
func (x *XXLJobRun) SetDefaults() {
	x.Blocking, x.CallbackTimeout = BlockingQueue, run.DefaultCallbackTimeout
}

// check reports the problems of the target of a group of executors. The parameter is checked as a template elsewhere.
func (x *XXLJobRun) check(problems *input.Problems, at string, g *GroupTarget) {
	if !xxlJobName.MatchString(x.Handler) {
		problems.Add(at+"/handler", input.CodeRequired, "handler is missing, or holds a space or a control character, or more than "+
			"255 characters; give the name of a JobHandler")
	}
	if x.Blocking != "" {
		input.CheckEnum(problems, at+"/blocking", "blocking", x.Blocking, ExecutorBlockings)
	}
	if t := x.ExecutorTimeout; t != 0 {
		t.CheckRange(problems, at+"/executor_timeout", time.Second, input.MaxDuration)
		if t.Std()%time.Second != 0 {
			problems.Add(at+"/executor_timeout", input.CodeDurationMin, "executor_timeout %s is not in whole seconds, which is all that "+
				"executors know", t)
		}
	}
	if t := x.CallbackTimeout; t != 0 {
		t.CheckRange(problems, at+"/callback_timeout", time.Second, run.MostCallbackWait)
	}
	for _, other := range []struct {
		name  string
		given bool
	}{
		{"path", g.Path != ""}, {"method", g.Method != "" && g.Method != "POST"}, {"headers", len(g.Headers) > 0}, {"body", g.Body != ""},
		{"success_codes", g.SuccessCodes != nil}, {"expect_body", g.ExpectBody != ""}, {"cloud_events", g.CloudEvents != ""},
		{"callback", g.Callback != nil}, {"endpoint_concurrency", g.EndpointConcurrency != ""},
	} {
		if other.given {
			problems.Add("/"+other.name, input.CodeGroupKind, "the protocol of executors leaves no choice of %s; leave it out, or leave "+
				"xxl_job out", other.name)
		}
	}
}

// xxlJobRequest is the body of /run for XXL-JOB's executors.
type xxlJobRequest struct {
	JobID                 int32  `json:"jobId"`
	ExecutorHandler       string `json:"executorHandler"`
	ExecutorParams        string `json:"executorParams"`
	ExecutorBlockStrategy string `json:"executorBlockStrategy"`
	ExecutorTimeout       int64  `json:"executorTimeout"` // seconds; 0: none
	LogID                 int64  `json:"logId"`
	LogDateTime           int64  `json:"logDateTime"` // ms
	GlueType              string `json:"glueType"`
	GlueSource            string `json:"glueSource"`
	GlueUpdatetime        int64  `json:"glueUpdatetime"`
	BroadcastIndex        int    `json:"broadcastIndex"`
	BroadcastTotal        int    `json:"broadcastTotal"`
}

// executorRequest is GroupRequest for an executor.
func (c Call) executorRequest() (w *Webhook, path string, headers map[string]string, body []byte, err error) {
	run := c.Target.Group.XXLJob
	w = c.Target.Group.webhook()
	w.Timeout, w.TLS = cmp.Or(w.Timeout, DefaultTimeout), c.Group.TLS
	param := string(c.Payload)
	if text := ""; json.Unmarshal(c.Payload, &text) == nil {
		param = text
	}
	if run.Param != "" {
		asWebhook := c
		asWebhook.Target = Target{Webhook: w}
		if _, _, body, err = asWebhook.Request(); err != nil {
			return w, "", nil, nil, err
		}
		param = string(body)
	}
	return w, "/run", nil, c.xxlJobBody(param), nil
}

// xxlJobBody returns the body of /run for an attempt, with its parameter filled in.
func (c Call) xxlJobBody(param string) []byte {
	run := c.Target.Group.XXLJob
	id := c.ExecutorRun()
	index, total := 0, 1 // one executor has the whole run
	if c.Shard != nil {
		index, total = c.Shard.Index, c.Shard.Total
	}
	text, _ := json.Marshal(xxlJobRequest{ // no field of it can fail
		JobID: id.JobID, ExecutorHandler: run.Handler, ExecutorParams: param,
		ExecutorBlockStrategy: blockStrategies[cmp.Or(run.Blocking, BlockingQueue)],
		ExecutorTimeout:       int64(run.ExecutorTimeout.Std() / time.Second),
		LogID:                 id.LogID, LogDateTime: id.LoggedAt.UnixMilli(), GlueType: "BEAN",
		BroadcastIndex: index, BroadcastTotal: total,
	})
	return text
}

// ExecutorRun returns how executors identify the attempt c.
func (c Call) ExecutorRun() run.ExecutorRun {
	return run.ExecutorRun{JobID: run.ExecutorJobID(c.App, c.Job), LogID: run.ExecutorLogID(c.EventID, c.Attempt), LoggedAt: c.Key.ScheduledAt}
}

// ExecutorCallback returns how the executor that accepted the attempt c reports the outcome later.
func (c Call) ExecutorCallback() *run.Callback {
	within := cmp.Or(c.Target.Group.XXLJob.CallbackTimeout, run.DefaultCallbackTimeout)
	return &run.Callback{ID: c.ExecutorRun().LogID, Group: c.Target.Group.Name, Within: within.Std()}
}

// ExecutorLog is a part of the log of an attempt, as its executor keeps it.
type ExecutorLog struct {
	// Run and Attempt identify the logged attempt, and Endpoint is the executor that keeps the log.
	Run     string `json:"run"`
	Attempt int    `json:"attempt"`
	// The executor that keeps the log.
	Endpoint string `json:"endpoint"`
	// FromLine and ToLine are the first and the last line of Content, from 1. ToLine is less than FromLine if there is none.
	FromLine int `json:"from_line"`
	// The last line of content, less than from_line if there is none.
	ToLine int `json:"to_line"`
	// Content is the text, with line ends.
	Content string `json:"content"`
	// End is true if the attempt is over, so that no line follows.
	End bool `json:"end"`
}

// GroupKind is the protocol that the endpoints of a group speak.
type GroupKind string

// The kinds of groups.
const (
	GroupHTTP   GroupKind = "http"    // each endpoint is a web server that a job's request goes to
	GroupXXLJob GroupKind = "xxl_job" // each endpoint is an executor of XXL-JOB
)

// GroupKinds are all kinds of groups.
var GroupKinds = []GroupKind{GroupHTTP, GroupXXLJob}

// XXLJobSettings are the settings of a group of kind xxl_job. Other groups have none.
type XXLJobSettings struct {
	// AppName is the AppName of XXL-JOB that executors register under; empty means the name of the group.
	AppName string `json:"app_name,omitempty" schema:"max=255"`
	// AccessToken authenticates executors and Carillon to each other. A group of kind xxl_job must have one.
	AccessToken *Secret `json:"access_token,omitempty"`
}

// xxlJobName matches an AppName, or the name of a JobHandler.
var xxlJobName = regexp.MustCompile(`^[^\x00-\x20\x7f]{1,255}$`)

// checkKind reports settings that do not fit the kind of g.
func (g EndpointGroup) checkKind(problems *input.Problems) {
	if g.Kind != "" {
		input.CheckEnum(problems, "/kind", "kind", g.Kind, GroupKinds)
	}
	if g.Kind != GroupXXLJob {
		if g.AppName != "" {
			problems.Add("/app_name", input.CodeGroupKind, "only a group of kind xxl_job has an app_name; leave it out")
		}
		if g.AccessToken != nil {
			problems.Add("/access_token", input.CodeGroupKind, "only a group of kind xxl_job has an access_token; others authenticate by auth")
		}
		return
	}
	if g.AppName != "" && !xxlJobName.MatchString(g.AppName) {
		problems.Add("/app_name", input.CodeTextInvalid, "app_name holds a space or a control character, or more than 255 characters")
	}
	if g.AccessToken == nil {
		problems.Add("/access_token", input.CodeRequired, "access_token is missing; without one, anyone could register as an executor")
	} else {
		g.AccessToken.check(problems, "/access_token", accessTokenForm)
	}
	if g.Signing != nil {
		problems.Add("/signing", input.CodeGroupKind, "executors of XXL-JOB check no signature; leave signing out")
	}
	if g.Auth != nil {
		problems.Add("/auth", input.CodeGroupKind, "executors of XXL-JOB know only the access_token; leave auth out")
	}
	if g.HealthCheck != nil {
		problems.Add("/health_check", input.CodeGroupKind, "executors of XXL-JOB have no path to check; leave health_check out, and choose "+
			"strategy failover, which asks them by /beat")
	}
}

// minAccessToken is the least length of an access token, in bytes: anyone who guesses it can register as an executor.
const minAccessToken = 16

// accessTokenForm checks the value of an access token. The value is never shown.
func accessTokenForm(value string) error {
	switch {
	case value == "default_token":
		return &input.Problem{Code: input.CodeSecretLength,
			Message: "access_token is the one that XXL-JOB's example configuration has, which everyone " +
				"knows; choose another one of at least 16 bytes, here and in xxl.job.accessToken of the executors"}
	case len(value) < minAccessToken:
		return &input.Problem{Code: input.CodeSecretLength,
			Message: fmt.Sprintf("access_token has %d bytes; the minimum is %d, because anyone who "+
				"guesses it can register as an executor", len(value), minAccessToken)}
	}
	return headerForm(value)
}

// ExecutorName returns the AppName that executors of g register under.
func (g EndpointGroup) ExecutorName() string {
	if g.AppName == "" {
		return g.Name
	}
	return g.AppName
}

// ExecutorEndpointID returns the id of the executor at a URL: its IPv4 address and port with dashes, such as
// 10-0-3-17-9999, and the beginning of a hash if the URL has anything else, so that two executors never share an id.
func ExecutorEndpointID(text string) string {
	const most, hashed = 40, 4 // characters, bytes
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "http" && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.User == nil {
		if addr, err := netip.ParseAddrPort(u.Host); err == nil && addr.Addr().Is4() {
			return strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
		}
	}
	host := ""
	if err == nil {
		host = strings.Trim(notInName.ReplaceAllString(strings.ToLower(u.Host), "-"), "-")
	}
	sum := sha256.Sum256([]byte(strings.TrimSuffix(text, "/")))
	return strings.TrimPrefix(host[:min(len(host), most)]+"-"+hex.EncodeToString(sum[:hashed]), "-")
}

// notInName are runs of characters that ids do not have.
var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// CheckReplaces returns a problem if g cannot replace old, because it is of another kind: the jobs and endpoints of
// the group only work with one kind.
func (g EndpointGroup) CheckReplaces(old EndpointGroup) error {
	was, is := old.Resolved().Kind, g.Resolved().Kind
	if was == is {
		return nil
	}
	return &input.Problem{Path: "/kind", Code: input.CodeGroupKind,
		Message: "group is of kind " + string(was) + " and cannot become " + string(is) + "; make another group"}
}

// CheckGroup returns a problem, with a pointer in the job, if a job's target does not fit the kind of the group that
// it names.
func (t Target) CheckGroup(group EndpointGroup) error {
	if t.Group == nil {
		return nil
	}
	kind := group.Resolved().Kind
	switch isRun := t.Group.XXLJob != nil; {
	case kind == GroupXXLJob && !isRun:
		return &input.Problem{Path: "/target/group/xxl_job", Code: input.CodeGroupKind, Message: "group " + input.Echo(group.Name) +
			" is of kind xxl_job, so the target has to say which handler runs; add xxl_job with a handler"}
	case kind != GroupXXLJob && isRun:
		return &input.Problem{Path: "/target/group/xxl_job", Code: input.CodeGroupKind, Message: "group " + input.Echo(group.Name) +
			" is of kind " + string(kind) + ", whose endpoints know no handlers; leave xxl_job out, or name a group of kind xxl_job"}
	}
	return nil
}
