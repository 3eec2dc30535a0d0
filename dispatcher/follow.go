package dispatcher

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Follow declares what follows an event of a job: runs of other jobs of the app, and deliveries to an alert's and to its
// own destination. At least one of them is given. A run is followed once per event: after a retry that fails again nothing more follows,
// but a retry that succeeds is followed by what is declared for success.
type Follow struct {
	// Jobs are names of jobs of the app, at most MostFollowers. Each gets a run of kind chain.
	Jobs []string `json:"jobs,omitempty" schema:"Name,max=20"`
	// Payload selects the payload of the runs of Jobs. Empty means FollowOwn.
	Payload FollowPayload `json:"payload,omitempty" schema:"default=own"`
	// Alert names an alert of the app. Its destination gets an AlertNotification about the run, in its format and with
	// its retries, whatever the alert watches and although it may be muted. The alert need not exist.
	Alert string `json:"alert,omitempty" schema:"Name"`
	// FollowDestination gets a FollowDocument, in a run of kind follow with the app's default retries. A delivery with
	// more settings is a job without triggers in Jobs.
	target.FollowDestination
}

// FollowPayload selects the payload of a run that follows another one.
type FollowPayload string

// The payloads of followers.
const (
	FollowOwn    FollowPayload = "own"    // the payload of their job
	FollowResult FollowPayload = "result" // a FollowDocument
)

// Bounds of followers.
const (
	MostFollowers = 20   // jobs that follow one event
	MostFollowing = 1000 // jobs that follow a job directly or through others
)

// EachFollow yields each Follow of the job with its event.
func (f JobFollows) EachFollow() iter.Seq2[run.FollowEvent, *Follow] {
	return func(yield func(run.FollowEvent, *Follow) bool) {
		for i, follow := range []*Follow{f.OnSuccess, f.OnFailure, f.OnMisfire} {
			if follow != nil && !yield(run.FollowEvents[i], follow) {
				return
			}
		}
	}
}

// withFollows returns f with each Follow replaced by what change returns.
func (f JobFollows) withFollows(change func(run.FollowEvent, Follow) Follow) JobFollows {
	for event, follow := range f.EachFollow() {
		*map[run.FollowEvent]**Follow{run.OnSuccess: &f.OnSuccess, run.OnFailure: &f.OnFailure,
			run.OnMisfire: &f.OnMisfire}[event] = new(change(event, *follow))
	}
	return f
}

// FollowMask returns the mask of f, without the bits of alerts.
func (f JobFollows) FollowMask() (mask run.FollowMask) {
	for event := range f.EachFollow() {
		mask |= event.Mask()
	}
	return mask
}

// Followers returns the names of all jobs of f, sorted, each once.
func (f JobFollows) Followers() []string {
	var names []string
	for _, follow := range f.EachFollow() {
		names = append(names, follow.Jobs...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// FollowNames returns Followers, and the names of the attached jobs that deliver to the destinations of alerts.
func (f JobFollows) FollowNames() []string {
	names := f.Followers()
	for _, follow := range f.EachFollow() {
		if follow.Alert != "" {
			names = append(names, follow.Alert+AlertSuffix)
		}
	}
	return names
}

// checkFollows adds the problems of what follows j. The store checks that the jobs that it names exist and do not
// lead back to j.
func (j Job) checkFollows(problems *input.Problems) {
	for event, follow := range j.EachFollow() {
		at := "/" + string(event)
		to := follow.Target()
		if len(follow.Jobs) == 0 && to == nil && follow.Alert == "" {
			problems.Add(at, input.CodeRequired, "%s names nothing that follows; give it jobs, an alert, a webhook, a lambda, an sqs or an "+
				"sns, or leave it out", event)
		}
		if follow.Alert != "" {
			input.CheckName(problems, at+"/alert", follow.Alert)
		}
		if follow.Payload != "" {
			input.CheckEnum(problems, at+"/payload", "payload", follow.Payload, []FollowPayload{FollowOwn, FollowResult})
		}
		j.checkFollowJobs(problems, at+"/jobs", follow.Jobs)
		if to == nil {
			continue
		}
		wrong := to.Validate()
		if wrong == nil {
			wrong = to.TryTemplates(j.App, j.Name, json.RawMessage(`{}`))
		}
		problems.AddError(at, wrong)
	}
}

func (j Job) checkFollowJobs(problems *input.Problems, at string, jobs []string) {
	if len(jobs) > MostFollowers {
		problems.Add(at, input.CodeTooMany, "%d jobs follow one event; the maximum is %d", len(jobs), MostFollowers)
		return
	}
	for i, name := range jobs {
		at := at + "/" + strconv.Itoa(i)
		before := len(*problems)
		input.CheckName(problems, at, name)
		switch {
		case len(*problems) > before:
		case name == j.Name:
			problems.Add(at, input.CodeFollowCycle, "job %s would follow itself: %[1]s -> %[1]s; name another job, or give the job a retry",
				input.Echo(name))
		case slices.Contains(jobs[:i], name):
			problems.Add(at, input.CodeFollowTwice, "job %s is named twice; a job follows an event once", input.Echo(name))
		}
	}
}

// WithFollowSecrets returns j with other secrets in the destination of an event, by their pointers in it.
func (j Job) WithFollowSecrets(event run.FollowEvent, secrets map[string]target.Secret) Job {
	j.JobFollows = j.withFollows(func(of run.FollowEvent, follow Follow) Follow {
		if of == event {
			return target.WithSecrets(follow, secrets)
		}
		return follow
	})
	return j
}

// FollowerKey returns the key of the run of a job that follows an event of a run, or of missed fires, which have no
// kind. The key does not depend on how often the event is recorded, so each follower runs once. The salt is the app's.
func FollowerKey(salt run.Salt, of run.Key, event run.FollowEvent, follower int64, kind run.Kind) run.Key {
	id := salt.HashID("follow", of.String(), string(event), strconv.FormatInt(follower, 10))
	return run.Key{TriggerID: id, ScheduledAt: of.ScheduledAt, Kind: kind}
}

// FindFollowCycle returns the names of jobs that follow each other in a circle, the first again at the end, or nil.
// followers has the names of the jobs that follow a job, by its name.
func FindFollowCycle(followers map[string][]string) []string {
	done, path := map[string]bool{}, []string{}
	var visit func(name string) []string
	visit = func(name string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		if done[name] {
			return nil
		}
		path = append(path, name)
		for _, next := range followers[name] {
			if cycle := visit(next); cycle != nil {
				return cycle
			}
		}
		path, done[name] = path[:len(path)-1], true
		return nil
	}
	for _, name := range input.SortedKeys(followers) {
		if cycle := visit(name); cycle != nil {
			return cycle
		}
	}
	return nil
}

// Attached returns the job that makes the deliveries to the destination of a Follow, as declared. Its definition is
// part of j's, and users cannot choose its name.
func (j Job) Attached(event run.FollowEvent) Job {
	suffix := "." + string(event)
	job := Job{App: j.App, Name: j.Name + suffix}
	job.SetDefaults()
	job.LeaveToApp()
	job.Origin = OriginOf(j.CreatedAs()+suffix, job.Name)
	for of, follow := range j.EachFollow() {
		if to := follow.Target(); of == event && to != nil {
			job.Target = *to
		}
	}
	return job
}

// FollowDocument describes a run to its followers: a Follow's destination, and its Jobs with FollowResult.
type FollowDocument struct {
	Event  run.FollowEvent `json:"event"`
	Parent FollowedRun     `json:"parent"`
	// Result is the body of the response to the latest attempt, or the message of its callback: JSON if it is JSON
	// within the depth of payloads, else a text. It is left out if none is stored.
	Result json.RawMessage `json:"result,omitempty"`
	// ResultTruncated is true if Result is only the beginning.
	ResultTruncated bool `json:"result_truncated,omitempty"`
	// ResultOmitted explains why the result is left out although there may be one; empty if it is not.
	ResultOmitted string `json:"result_omitted,omitempty"`
}

// FollowedRun is a run that ended, or a range of missed fires, as followers see it.
type FollowedRun struct {
	// Run is the id of the run; for missed fires, of the catch-up run, and empty without one.
	Run     string `json:"run,omitempty"`
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger,omitempty"`
	// ScheduledAt is the scheduled time of the run, or of the first missed fire.
	ScheduledAt time.Time `json:"scheduled_at"`
	State       run.State `json:"state,omitempty"`
	Class       run.Class `json:"class,omitempty"`
	Error       string    `json:"error,omitempty"`
	HTTPStatus  int       `json:"http_status,omitempty"`
	Attempts    int       `json:"attempts,omitempty"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
	// Missed, Decision and Reason are set for missed fires only.
	Missed   *run.MissedRange `json:"missed,omitempty"`
	Decision Decision         `json:"decision,omitempty"`
	Reason   string           `json:"reason,omitempty"`
}

// Notification returns d as the destination of an alert gets it.
func (d FollowDocument) Notification(alert string) target.AlertNotification {
	p := d.Parent
	n := target.AlertNotification{App: p.App, Alert: alert, Job: p.Job, Condition: target.AlertCondition(d.Event),
		Transition: target.AlertFollowed, At: p.EndedAt, Since: p.EndedAt, Trigger: p.Trigger, Run: p.Run, Class: p.Class, Error: p.Error,
		ScheduledAt: &p.ScheduledAt, Reason: p.Reason}
	if p.Missed != nil {
		n.Count = p.Missed.Count
	}
	return n
}

// Encode returns d as JSON, of at most MaxPayload bytes, with the result in response, which is nil if none is stored.
func (d FollowDocument) Encode(response *run.Response) (json.RawMessage, error) {
	if response != nil {
		text := response.Body
		if response.CallbackResult != "" {
			text = response.CallbackResult
		}
		d.ResultTruncated = response.BodyTruncated && text == response.Body
		const room = input.MaxPayload - 16<<10 // without the rest of the document
		switch raw := json.RawMessage(text); {
		case text == "":
		case !d.ResultTruncated && json.Valid(raw) && input.JSONDepth(raw) < input.MaxPayloadDepth-1 && input.CheckJSONText(raw, 1) == nil:
			d.Result = raw
		default:
			var cut bool
			if d.Result, cut = jsonText(text, room); cut {
				d.ResultTruncated = true
			}
		}
	}
	return json.Marshal(d)
}

// jsonText returns a text as JSON, cut to at most most bytes.
func jsonText(text string, most int) (encoded json.RawMessage, cut bool) {
	for {
		encoded, _ = json.Marshal(text) // a string always marshals
		if len(encoded) <= most {
			return encoded, cut
		}
		keep := len(text) * most / len(encoded)
		for keep > 0 && !utf8.RuneStart(text[keep]) {
			keep--
		}
		text, cut = text[:keep], true
	}
}
