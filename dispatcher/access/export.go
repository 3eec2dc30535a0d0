package access

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Export is an app with everything that another installation needs to continue it: no fire is lost or repeated, and
// receivers see the same event ids as without the move.
type Export struct {
	// Format is ExportFormat.
	Format int `json:"format" schema:"required"`
	// Installation is the id in the event ids of the app. It moves with the app.
	Installation string `json:"installation" schema:"required"`
	// Salt is the salt of the app, so that the ids of its runs stay the same. Exports of older versions have none.
	Salt       run.Salt              `json:"salt,omitempty"`
	ExportedAt time.Time             `json:"exported_at" schema:"required"`
	App        App                   `json:"app" schema:"required"`
	Calendars  []dispatcher.Calendar `json:"calendars" schema:"required"`
	// Groups have no values of secrets, and no endpoints that registered themselves, because these register again.
	Groups []target.EndpointGroup `json:"groups" schema:"required"`
	// Alerts have no values of secrets, and no states of conditions.
	Alerts []alert.Alert `json:"alerts" schema:"required"`
	Jobs   []ExportedJob `json:"jobs" schema:"required"`
	// Pauses are the pauses of the app. The import creates them as its own, without those that have expired by then.
	Pauses []dispatcher.AppPauseRequest `json:"pauses,omitempty" schema:"max=100"`
	// Waiting are the runs that wait to begin, or to begin their next attempt. They move with the app.
	Waiting []ExportedRun `json:"waiting_runs" schema:"required"`
}

// ExportFormat is the version of Export.
const ExportFormat = 1

// ExportedJob is a job, and its progress.
type ExportedJob struct {
	// Job is the definition, as a PUT of the job takes it. Values of secrets are left out.
	Job dispatcher.Job `json:"job" schema:"required"`
	// Revision and Paused are those of the job.
	Revision int64 `json:"revision" schema:"required,max=4503599627370496,min=0"`
	Paused   bool  `json:"paused" schema:"required"`
	// PauseReason is why the job is paused, and PausedUntil until when. The import becomes the author of the pause.
	PauseReason string     `json:"pause_reason,omitempty" schema:"max=1024"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	// Origin is the name that event ids, H and jitter derive from, if the job was renamed. It may end in "~2" and so
	// on.
	Origin string `json:"origin,omitempty" schema:"Origin"`
	// CarriedState is the state that the next run of the job gets; absent if there is none. The import sets it.
	CarriedState json.RawMessage `json:"carried_state,omitempty"`
	// Triggers have the progress of each trigger of the job.
	Triggers map[string]dispatcher.ExportedTrigger `json:"triggers" schema:"required"`
}

// Runnable returns, by name, the jobs of the export with their revisions, and those of its deliveries and
// notifications.
func (e Export) Runnable() map[string]dispatcher.Job {
	all := map[string]dispatcher.Job{}
	for _, one := range e.Jobs {
		job := one.WithOrigins()
		job.Revision = one.Revision
		all[job.Name] = job
		for event, follow := range job.EachFollow() {
			if follow.Target() != nil {
				attached := job.Attached(event)
				all[attached.Name] = attached
			}
		}
	}
	for _, alert := range e.Alerts {
		attached := alert.Attached()
		all[attached.Name] = attached
	}
	return all
}

// Exports move apps between installations.
type Exports interface {
	// ExportApp returns a disabled app. ErrConflict: the app is enabled, its triggers do not follow its switch yet,
	// or runs of it are in flight. If the app stays disabled, it runs nothing of the Export.
	ExportApp(ctx context.Context, name string) (Export, error)
	// ImportQuotas returns the quotas that an import of app must keep: its own if an operator imports it, else those
	// of a deleted app with its name, or the defaults.
	ImportQuotas(ctx context.Context, app App, change input.Change) (target.Quotas, error)
	// ImportApp creates an app from an Export, completely or not at all. ErrPrecondition: the app exists. Problems: a
	// definition is wrong here, or lacks the value of a secret.
	ImportApp(ctx context.Context, export Export, change input.Change) (App, error)
}

// mostListed bounds the problems found in an export: a response lists no more, and a hostile export has millions.
const mostListed = 100

// Validate returns, as Problems or nil, everything wrong with e that does not depend on the installation. It stops
// after the element with which there are more problems than mostListed.
func (e Export) Validate() error {
	var problems input.Problems
	if e.Format != ExportFormat {
		problems.Add("/format", input.CodeEnum,
			"format %d is not %d, which this version reads; import with the version that exported it, or a later one",
			e.Format, ExportFormat)
		return problems
	}
	if e.Installation == "" {
		problems.Add("/installation", input.CodeRequired, "installation is missing; take the file as carillon app export wrote it")
	}
	e.Salt.Check(&problems, "/salt")
	problems.AddError("/app", e.App.Validate())
	checkRevision(&problems, "/app/revision", e.App.Revision)
	checkMoved(&problems, "/exported_at", &e.ExportedAt)
	each := func(list string, n int, check func(i int, at string)) {
		for i := 0; i < n && len(problems) <= mostListed; i++ {
			check(i, input.Pointer(list, strconv.Itoa(i)))
		}
	}
	seen := map[string]bool{}
	own := func(at, kind, app, name string) {
		if app != e.App.Name || seen[kind+name] {
			problems.Add(at+"/name", input.CodeNameMismatch, "%s %s is of another app than %s, or given twice", kind,
				input.Echo(app+"/"+name), input.Echo(e.App.Name))
		}
		seen[kind+name] = true
	}
	each("calendars", len(e.Calendars), func(i int, at string) { problems.AddError(at, e.Calendars[i].Validate()) })
	each("groups", len(e.Groups), func(i int, at string) {
		own(at, "group", e.Groups[i].App, e.Groups[i].Name)
		problems.AddError(at, e.Groups[i].Validate())
	})
	each("alerts", len(e.Alerts), func(i int, at string) {
		a := e.Alerts[i]
		own(at, "alert", a.App, a.Name)
		problems.AddError(at, a.Validate())
		if a.Muted != nil {
			input.CheckText(&problems, at+"/muted/reason", a.Muted.Reason)
			checkMoved(&problems, at+"/muted/until", a.Muted.Until)
			checkMoved(&problems, at+"/muted/at", a.Muted.At)
		}
	})
	each("jobs", len(e.Jobs), func(i int, at string) {
		one := e.Jobs[i]
		own(at+"/job", "job", one.Job.App, one.Job.Name)
		problems.AddError(at+"/job", one.WithOrigins().Validate())
		one.check(&problems, at)
		if one.CarriedState != nil {
			problems.AddError(at, one.checkCarriedState())
		}
	})
	if len(problems) > mostListed {
		return problems
	}
	e.checkOrigins(&problems)
	if len(e.Pauses) > dispatcher.MaxAppPauses {
		problems.Add("/pauses", input.CodeTooMany, "there are %d pauses; the maximum is %d", len(e.Pauses), dispatcher.MaxAppPauses)
	}
	for i, pause := range e.Pauses {
		problems.AddError(input.Pointer("pauses", strconv.Itoa(i)), pause.Validate())
	}
	e.checkWaiting(&problems)
	return problems.Err()
}

// checkWaiting adds the problems of the waiting runs: each must belong to a job of the export, and occur once.
func (e Export) checkWaiting(problems *input.Problems) {
	jobs, seen := e.Runnable(), make(map[run.Key]bool, len(e.Waiting))
	for i, run := range e.Waiting {
		if len(*problems) > mostListed {
			break
		}
		at, before := input.Pointer("waiting_runs", strconv.Itoa(i)), len(*problems)
		run.check(problems, at, jobs, e.Salt)
		if len(*problems) > before {
			continue
		}
		key := run.Key(jobs[run.Job])
		key.ScheduledAt = key.ScheduledAt.UTC()
		if seen[key] {
			problems.Add(at, input.CodeEnum, "run %s of job %s is given twice; take the file as carillon app export wrote it", key,
				input.Echo(run.Job))
		}
		seen[key] = true
	}
}

// check adds the problems of the progress of a job and its triggers.
func (e ExportedJob) check(problems *input.Problems, at string) {
	input.CheckText(problems, at+"/pause_reason", e.PauseReason)
	checkRevision(problems, at+"/revision", e.Revision)
	checkMoved(problems, at+"/paused_until", e.PausedUntil)
	for _, name := range input.SortedKeys(e.Triggers) {
		one, at := e.Triggers[name], at+input.Pointer("triggers", name)
		input.CheckText(problems, at+"/pause_reason", one.PauseReason)
		input.CheckEnum(problems, at+"/state", "state", one.State,
			[]dispatcher.TriggerState{dispatcher.TriggerWaiting, dispatcher.TriggerComplete, dispatcher.TriggerError, dispatcher.TriggerPaused})
		input.CheckRange(problems, at+"/fired", one.Fired, 0, math.MaxInt32)
		checkMoved(problems, at+"/paused_until", one.PausedUntil)
		checkMoved(problems, at+"/anchor_at", &one.AnchorAt)
		checkMoved(problems, at+"/prev_fire_time", one.PrevFireTime)
		checkMoved(problems, at+"/next_fire_time", one.NextFireTime)
	}
}

// mostRevision is half of the largest number that every reader of JSON reads exactly, because revisions grow.
const mostRevision = 1 << 52

func checkRevision(problems *input.Problems, at string, revision int64) {
	if revision < 0 || revision > mostRevision {
		problems.Add(at, input.CodeCountRange, "revision %d is not in 0 to %d; take the file as carillon app export wrote it", revision,
			int64(mostRevision))
	}
}

// checkMoved adds a problem if an instant does not fit into a key or a time of a trigger: a whole millisecond of the
// years 1970 to 9999. nil is valid.
func checkMoved(problems *input.Problems, path string, at *time.Time) {
	if at == nil || at.Year() >= 1970 && at.UnixMilli() >= 0 && at.UTC().Year() <= 9999 && at.Nanosecond()%int(time.Millisecond) == 0 {
		return
	}
	problems.Add(path, input.CodeTimeRange, "%s is not a whole millisecond of the years 1970 to 9999; take the file as carillon app export "+
		"wrote it", input.FormatInstant(*at))
}

// checkCarriedState returns the problems of the state of e, as Problems, or nil.
func (e ExportedJob) checkCarriedState() error {
	var problems input.Problems
	if !e.Job.CarryState {
		problems.Add("/carried_state", input.CodeCarryState,
			"job %s does not carry a state; leave out carried_state, or set carry_state of the job",
			input.Echo(e.Job.Name))
	} else if _, err := run.ReadCarriedState(e.CarriedState); err != nil {
		problems.Add("/carried_state", input.CodeStateInvalid, "%s", err)
	}
	return problems.Err()
}

// Restore returns the job as it is to be stored, with its exported progress. prior is the revision of a deleted job
// of that name. by is the importer, who becomes the author of the pauses.
func (e ExportedJob) Restore(prior int64, calendars dispatcher.Calendars, by string, now time.Time) (dispatcher.Job, error) {
	job := e.WithOrigins()
	(*dispatcher.JobDefaults)(nil).Fill(&job) // an export is complete, but its author may have left fields out
	job.Revision, job.Paused, job.CreatedAt, job.UpdatedAt = max(e.Revision, prior+1), e.Paused, now, now
	job.Pause = importedPause(e.Paused, by, dispatcher.PauseRequest{Reason: e.PauseReason, Until: e.PausedUntil}, now)
	var problems input.Problems
	for _, name := range input.SortedKeys(job.Triggers) {
		at := input.Pointer("triggers", name)
		state, there := e.Triggers[name]
		if !there {
			problems.Add(at, input.CodeRequired,
				"the export does not say where trigger %s stands; take the file as carillon app export wrote it", input.Echo(name))
			continue
		}
		t, err := job.Triggers[name].Restore(state, job.Identity(name), calendars)
		problems.AddError(at, err)
		t.Pause = importedPause(state.Paused, by, dispatcher.PauseRequest{Reason: state.PauseReason, Until: state.PausedUntil}, now)
		job.Triggers[name] = t
	}
	if err := problems.Err(); err != nil {
		return dispatcher.Job{}, err
	}
	job.State = job.RollUp(false)
	return job, nil
}

func importedPause(paused bool, by string, asked dispatcher.PauseRequest, now time.Time) dispatcher.Pause {
	if !paused {
		return dispatcher.Pause{}
	}
	return dispatcher.Pause{PausedBy: by, PausedAt: &now, PauseReason: asked.Reason, PausedUntil: asked.Until}
}

// WithOrigins returns the job with the origins of the export.
func (e ExportedJob) WithOrigins() dispatcher.Job {
	job := e.Job
	job.Origin = dispatcher.OriginOf(e.Origin, job.Name)
	job.Triggers = maps.Clone(job.Triggers)
	for name, t := range job.Triggers {
		t.Origin = dispatcher.OriginOf(e.Triggers[name].Origin, name)
		job.Triggers[name] = t
	}
	return job
}

// originPattern matches a name, or the origin of a job or trigger whose name already was the origin of another.
var originPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}(~[1-9][0-9]{0,5})?$`)

// checkOrigins adds the problems of the origins in e: each must be valid, and unique among the jobs or the triggers
// of a job, because equal origins give equal event ids.
func (e Export) checkOrigins(problems *input.Problems) {
	jobs := map[string]string{} // by origin
	for i, one := range e.Jobs {
		at, job := input.Pointer("jobs", strconv.Itoa(i)), one.WithOrigins()
		checkOrigin(problems, jobs, at, job.Name, job.CreatedAs())
		triggers := map[string]string{}
		for _, name := range input.SortedKeys(job.Triggers) {
			checkOrigin(problems, triggers, at+input.Pointer("triggers", name), name, job.TriggerOrigin(name))
		}
	}
}

// checkOrigin adds the problems of the origin of a job or trigger; owners are the names of earlier ones, by origin.
func checkOrigin(problems *input.Problems, owners map[string]string, at, name, origin string) {
	other, taken := owners[origin]
	switch {
	case !originPattern.MatchString(origin) && origin != name: // a problem of a name is reported for the name
		problems.Add(at+"/origin", input.CodeNameFormat, "origin %s is neither a name nor a name with ~2, ~3 and so on after it; "+
			"take the file as carillon app export wrote it", input.Echo(origin))
	case taken && other != name:
		problems.Add(at+"/origin", input.CodeNameMismatch, "%s and %s have the same origin, %s; take the file as carillon app export wrote it",
			input.Echo(other), input.Echo(name), input.Echo(origin))
	}
	owners[origin] = name
}

// Counts returns the amounts of quotas that e would use.
func (e Export) Counts() target.ImportCounts {
	counts := target.ImportCounts{Jobs: len(e.Jobs), WaitingRuns: len(e.Waiting)}
	for _, one := range e.Jobs {
		counts.Triggers += len(one.Job.Triggers)
	}
	return counts
}

// ExportedRun is a waiting run: it is queued, or retrying.
type ExportedRun struct {
	Job string `json:"job" schema:"JobOrDelivery,required"`
	// Trigger is empty for a manual run.
	Trigger     string    `json:"trigger,omitempty"`
	Kind        run.Kind  `json:"kind" schema:"required"`
	ScheduledAt time.Time `json:"scheduled_at" schema:"required"`
	State       run.State `json:"state" schema:"required,enum=queued|retrying"`
	// Attempt is the number of the latest attempt, from 0 to MostRunAttempts; Failures are at most as many.
	Attempt int `json:"attempt" schema:"required,max=1000000,min=0"`
	// At most attempt.
	Failures      int        `json:"failures,omitempty" schema:"min=0"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	RetryUntil    *time.Time `json:"retry_until,omitempty"`
	// Run is the id of a run that follows another one or delivers the notification of an alert; empty for other runs.
	// Input determines it; see Proven.
	Run string `json:"run,omitempty" schema:"RunID"`
	// Input is the input of the run; nil if it has none.
	Input *run.Input `json:"input,omitempty"`
}

// MostRunAttempts bounds the attempts of an imported run: real runs have fewer, and later numbers still fit.
const MostRunAttempts = 1_000_000

// Key returns the key of a waiting run of job.
func (r ExportedRun) Key(job dispatcher.Job) run.Key {
	key := run.Key{TriggerID: job.Key(), ScheduledAt: r.ScheduledAt, Kind: r.Kind}
	switch {
	case r.Kind.HasOwnID():
		key, _ = run.ParseKey(r.Run) // as Export.Validate has checked
	case r.Kind != run.KindManual:
		key.TriggerID = job.TriggerKey(r.Trigger)
	}
	return key
}

// Proven reports whether r is a run of the job that it names, from Export.Runnable. If runs of its kind have ids of
// their own, the id is a hash that includes the key of its job, or of the alert of its job: it is proven if the input
// of the run and the salt of the app give that id. Any other id may belong to a run of another app. The ids of all
// other runs derive from the names of the job.
func (r ExportedRun) Proven(jobs map[string]dispatcher.Job, salt run.Salt) bool {
	if !r.Kind.HasOwnID() {
		return true
	}
	key, err := run.ParseKey(r.Run)
	if err != nil || r.Input == nil || r.Input.Cause == nil {
		return false
	}
	var proven run.Key
	if r.Kind == run.KindAlert {
		proven = r.toldAs(jobs, salt)
	} else {
		proven = r.followedAs(jobs[r.Job].Key(), salt)
	}
	return proven != run.Key{} && proven == key && key.ScheduledAt.Equal(r.ScheduledAt)
}

// followedAs returns the key of a run of a job that follows the run or fires in its input; zero without these.
func (r ExportedRun) followedAs(job int64, salt run.Salt) run.Key {
	event, parent := run.FollowEvent(r.Input.Cause.On), r.Input.Cause.Run
	if event == run.OnMisfire {
		parent = r.Input.Missed
	}
	of, err := run.ParseKey(parent)
	if err != nil || !slices.Contains(run.FollowEvents, event) {
		return run.Key{}
	}
	if event == run.OnMisfire {
		of.Kind = "" // missed fires have no kind
	}
	return dispatcher.FollowerKey(salt, of, event, job, r.Kind)
}

// toldAs returns the key of a run that delivers the notification in its payload; zero if it has none.
func (r ExportedRun) toldAs(jobs map[string]dispatcher.Job, salt run.Salt) run.Key {
	deliveries := jobs[r.Job]
	name, isAlert := strings.CutSuffix(deliveries.Name, dispatcher.AlertSuffix)
	var told target.AlertNotification
	if !isAlert || json.Unmarshal(r.Input.Payload, &told) != nil {
		return run.Key{}
	}
	alert, about := dispatcher.AlertID(deliveries.App, name), run.JobID(deliveries.App, told.Job)
	if job, there := jobs[told.Job]; there { // otherwise it was deleted, or renamed from the name of its creation
		about = job.Key()
	}
	if told.Job == "" { // a test
		about, told.Condition = 0, ""
	}
	return run.Key{TriggerID: dispatcher.AlertStateID(salt, alert, about, told.Condition), ScheduledAt: r.ScheduledAt.UTC(),
		Kind: run.KindAlert}
}

// check adds the problems of a waiting run of the jobs and deliveries of an export; salt is that of its app.
func (r ExportedRun) check(problems *input.Problems, at string, jobs map[string]dispatcher.Job, salt run.Salt) {
	job, known := jobs[r.Job]
	if !known || r.State != run.Queued && r.State != run.Retrying {
		problems.Add(at, input.CodeEnum, "run of job %s in state %s is not a queued or retrying run of a job of the export",
			input.Echo(r.Job), input.Echo(string(r.State)))
		return
	}
	if r.Kind.OfTrigger() {
		if _, there := job.Triggers[r.Trigger]; !there {
			problems.Add(at+"/trigger", input.CodeEnum, "trigger %s is none of job %s; take the file as carillon app export wrote it",
				input.Echo(r.Trigger), input.Echo(r.Job))
		}
	} else if !r.Kind.HasOwnID() && r.Kind != run.KindManual {
		problems.Add(at+"/kind", input.CodeEnum, "kind %s is not one of a run that moves with its app; take the file as carillon app export "+
			"wrote it", input.Echo(string(r.Kind)))
		return
	}
	input.CheckRange(problems, at+"/attempt", r.Attempt, 0, MostRunAttempts)
	input.CheckRange(problems, at+"/failures", r.Failures, 0, max(r.Attempt, 0))
	checkMoved(problems, at+"/scheduled_at", &r.ScheduledAt)
	checkMoved(problems, at+"/next_attempt_at", r.NextAttemptAt)
	checkMoved(problems, at+"/retry_until", r.RetryUntil)
	if r.Input != nil {
		problems.AddError(at+"/input", run.CheckPayload(r.Input.Payload))
	}
	if !r.Proven(jobs, salt) {
		problems.Add(at+"/run", input.CodeEnum, "run %s does not follow from the input as a run of kind %s of job %s at %s, so it may be one "+
			"of another app; take the file as carillon app export wrote it", input.Echo(r.Run), r.Kind, input.Echo(r.Job),
			input.FormatInstant(r.ScheduledAt))
	}
}
