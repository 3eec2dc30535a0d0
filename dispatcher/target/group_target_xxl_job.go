package target

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// XXLJobRun is what an executor of a group of kind xxl_job runs.
type XXLJobRun struct {
	// Handler is the name of a JobHandler (BEAN mode) of the executors.
	Handler string `json:"handler"`
	// Param is the parameter of the run, which may be a template. Empty: the payload, of which a JSON string is sent
	// without its quotes.
	Param string `json:"param,omitempty"`
	// Blocking is what an executor does if it runs the job already; empty means queue.
	Blocking ExecutorBlocking `json:"blocking,omitempty"`
	// ExecutorTimeout is for how long a run may take until its executor interrupts it, in whole seconds; 0: for any time.
	ExecutorTimeout input.Duration `json:"executor_timeout,omitempty"`
	// CallbackTimeout is how long after it accepted a run an executor may call back; 0 means DefaultCallbackTimeout.
	CallbackTimeout input.Duration `json:"callback_timeout,omitempty"`
}

// ExecutorBlocking is what an executor does with a run of a job that it runs already.
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

// check reports what is wrong with the target of a group of executors. The parameter is checked as a template elsewhere.
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

// xxlJobRequest is the body of /run, as XXL-JOB's executors know it.
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
	param := c.xxlJobPayload()
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

// xxlJobBody returns the body of /run of an attempt whose parameter is filled in.
func (c Call) xxlJobBody(param string) []byte {
	run := c.Target.Group.XXLJob
	id := c.ExecutorRun()
	index, total := 0, 1 // one executor has all of the run
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

// xxlJobPayload returns the payload as the parameter of a run that has none.
func (c Call) xxlJobPayload() string {
	var text string
	if json.Unmarshal(c.Payload, &text) == nil {
		return text
	}
	return string(c.Payload)
}

// ExecutorRun returns how executors know the attempt c.
func (c Call) ExecutorRun() run.ExecutorRun {
	return run.ExecutorRun{JobID: run.ExecutorJobID(c.App, c.Job), LogID: run.ExecutorLogID(c.EventID, c.Attempt), LoggedAt: c.Key.ScheduledAt}
}

// ExecutorCallback returns how the executor that accepted the attempt c says later how it ended.
func (c Call) ExecutorCallback() *run.Callback {
	within := cmp.Or(c.Target.Group.XXLJob.CallbackTimeout, run.DefaultCallbackTimeout)
	return &run.Callback{ID: c.ExecutorRun().LogID, Group: c.Target.Group.Name, Within: within.Std()}
}

// ExecutorLog is a part of the log of an attempt, as its executor keeps it.
type ExecutorLog struct {
	// Run and Attempt say what the log is of, and Endpoint is the executor that keeps it.
	Run      string `json:"run"`
	Attempt  int    `json:"attempt"`
	Endpoint string `json:"endpoint"`
	// FromLine and ToLine are the first and the last line of Content, from 1. ToLine is less than FromLine if there is none.
	FromLine int `json:"from_line"`
	ToLine   int `json:"to_line"`
	// Content is the text, with line ends.
	Content string `json:"content"`
	// End says that the attempt is over, so that no line follows.
	End bool `json:"end"`
}
