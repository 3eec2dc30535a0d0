package console

import (
	"cmp"
	"html/template"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

type runsPage struct {
	runTable
	// App is that of the path; empty: the list is of all apps that the token may see.
	App    string
	Filter map[string]string // as it was written
	// Problems are the problems with the filter; nothing is listed then.
	Problems []string
	Runs     []run.Run
	Next     string
	First    string
	// Last are the lengths of time before now that a person can choose, with their links.
	Last    []lastChoice
	States  []run.State
	Kinds   []run.Kind
	Classes []run.Class
}

// lastChoice is a length of time before now, such as 24h.
type lastChoice struct {
	Length, Link string
	Current      bool
}

// pageOfRuns is how many runs a page of the list has.
const pageOfRuns = 50

// searchFields are the fields of the filter of runs that only a search knows.
var searchFields = []string{"class", "error", "id", "kind", "label", "node"}

// showRuns lists runs of an app, or of all apps, the latest scheduled first.
func showRuns(v *visit) (content, error) {
	f := v.fields()
	page := runsPage{App: v.PathValue("app"), Filter: f.All(append(searchFields, "app", "job", "trigger", "state", "from", "to", "last")...),
		States: run.States, Kinds: run.Kinds(), Classes: slices.Sorted(slices.Values(run.Classes))}
	page.Ticks = v.token.May(runScope)
	page.Last = v.lastChoices("1h", "6h", "24h", "7d")
	query := dispatcher.RunSearch{
		Job: f.Text("job"), Trigger: f.Text("trigger"), State: run.State(f.Text("state")), Kind: run.Kind(f.Text("kind")),
		Class: run.Class(f.Text("class")), Error: f.Text("error"), ID: f.Text("id"),
		Page: input.Page{Limit: pageOfRuns, Cursor: v.query("cursor"), Labels: input.ParseLabels(f.Text("label"))},
	}
	if node := f.Text("node"); node != "" {
		id, err := run.ParseNodeID(node)
		f.Problems.AddError("/node", err)
		query.Node = id
	}
	if last := f.Duration("last"); last > 0 {
		query.From = v.Now.Add(-last.Std())
	}
	page.Problems = v.readBounds(&query.From, &query.To)
	for _, problem := range f.Problems {
		page.Problems = append(page.Problems, problem.Message)
	}
	result := content{Refresh: true}
	if page.App != "" {
		result.Follow = v.link("apps", page.App, "runs", "changes")
		result.Title = v.Texts.Text("runs.of", "app", page.App)
	}
	if app := cmp.Or(page.App, f.Text("app")); app != "" {
		query.Apps = []string{app}
	}
	if len(page.Problems) == 0 {
		found, err := page.find(v, query)
		page.Runs, page.Next, page.First = found.Items, v.more(found.Next), v.first()
		if page.Next == "" && page.First == "" {
			page.Sorting = sorted(v, page.Runs, map[string]func(a, b run.Run) int{
				"scheduled": func(a, b run.Run) int { return a.ScheduledAt.Compare(b.ScheduledAt) },
				"job":       func(a, b run.Run) int { return cmp.Compare(a.App+"/"+a.Job, b.App+"/"+b.Job) },
				"state":     func(a, b run.Run) int { return cmp.Compare(a.State, b.State) },
				"attempt":   func(a, b run.Run) int { return cmp.Compare(a.Attempt, b.Attempt) },
				"took": func(a, b run.Run) int {
					return cmp.Compare(*cmp.Or(page.Took(a), new(time.Duration(-1))), *cmp.Or(page.Took(b), new(time.Duration(-1))))
				},
			})
		}
		result.Data = page
		return v.filtered(result, err)
	}
	result.Data = page
	return result, nil
}

// find lists the runs of an app if no field needs a search, which goes back only a day for each page.
func (p *runsPage) find(v *visit, query dispatcher.RunSearch) (client.List[run.Run], error) {
	for _, field := range searchFields {
		if p.Filter[field] != "" || len(query.Apps) == 0 {
			return v.client.SearchRuns(v.Context(), query)
		}
	}
	return v.client.Runs(v.Context(), dispatcher.RunQuery{App: query.Apps[0], Job: query.Job, Trigger: query.Trigger, State: query.State,
		From: query.From, To: query.To, Page: query.Page})
}

// lastChoices returns links to this page with lengths of time before now in place of its bounds.
func (v *visit) lastChoices(lengths ...string) (all []lastChoice) {
	q := v.URL.Query()
	chosen := q.Get("last")
	for _, of := range []string{"from", "to", "cursor"} {
		q.Del(of)
	}
	for _, length := range lengths {
		q.Set("last", length)
		all = append(all, lastChoice{length, v.sameWith(q), length == chosen})
	}
	return all
}

// runTable is the data of the table of runs.
type runTable struct {
	zones   map[string]string
	Sorting sorting
	// Ticks means that a person can choose runs, for an action on all of them.
	Ticks bool
}

// Zone returns the zone of a trigger; empty: unknown.
func (t runTable) Zone(trigger string) string { return t.zones[trigger] }

// Took returns how long the latest attempt of a run took, nil if it is not over.
func (runTable) Took(run run.Run) *time.Duration {
	if run.StartedAt == nil || run.EndedAt == nil {
		return nil
	}
	took := run.EndedAt.Sub(*run.StartedAt)
	return &took
}

// runPage is one run, from its scheduled time to its end.
type runPage struct {
	run.Run
	runTable
	// TimeZone is that of the trigger, if times are shown in it.
	TimeZone string
	// TraceURL is that of its trace in the tracing system; empty: it is unknown.
	TraceURL string
	// Stages are its waits and attempts, for the picture and the table.
	Stages []kit.Stage
	// Given is the payload of the run itself, as text; empty: that of its job.
	Given   string
	Tries   []tryRow
	Request kit.Part[target.ShownRequest]
	// Shards is a page of those of a broadcast, nil for other runs, and MoreShards a link to the next page.
	Shards     *kit.Part[client.List[run.Run]]
	MoreShards string
	// Log is that of an executor, nil unless the URL requests it. LogAttempt is the attempt that has one; 0: none has.
	Log        *kit.Part[target.ExecutorLog]
	LogAttempt int
	OfJob      ofJob
}

// tryRow is an attempt. Full means that the stored response is shown completely: that is so for one attempt of a page.
type tryRow struct {
	run.Attempt
	Full bool
	// Returned is the state that the target returned, as text.
	Returned string
}

func showRun(v *visit) (content, error) {
	run, err := v.client.Run(v.Context(), v.PathValue("run"))
	if err != nil {
		return content{}, err
	}
	page := runPage{Run: run, Stages: kit.Stages(run, v.Now), Given: shownJSON(run.Payload)}
	page.TimeZone = v.zoneOf(run.App, run.Job, run.Trigger)
	page.zones = map[string]string{run.Trigger: page.TimeZone}
	if of := v.console.opts.TraceURL; of != nil && run.TraceID != "" {
		page.TraceURL = of(run.TraceID)
	}
	page.Request = kit.ReadPart(v.client.RequestOfRun(v.Context(), run.ID))
	page.addTries(v)
	page.addJob(v)
	if run.Shards != nil {
		shards := kit.ReadPart(v.client.Runs(v.Context(), dispatcher.RunQuery{
			App: run.App, Parent: run.ID, Page: input.Page{Limit: pageOfRuns, Cursor: v.query("cursor")},
		}))
		page.Shards, page.MoreShards = &shards, v.more(shards.Value.Next)
	}
	if attempt, err := strconv.Atoi(v.query("log")); err == nil && attempt >= 1 { // a request to the executor
		log := kit.ReadPart(v.client.RunLog(v.Context(), run.ID, attempt, 1))
		page.Log = &log
	}
	title := v.Texts.Text("run.title", "job", run.App+"/"+run.Job)
	shown := content{Title: title, App: run.App, Data: &page, Zone: page.TimeZone, Refresh: !page.Ended()}
	if shown.Refresh {
		shown.Follow = v.link("runs", run.ID, "changes")
	}
	return shown, nil
}

// addTries adds the attempts, the latest first; the URL selects the attempt with a complete response, by default the latest.
func (p *runPage) addTries(v *visit) {
	full, err := strconv.Atoi(v.query("attempt"))
	if err != nil && len(p.Attempts) > 0 {
		full = p.Attempts[len(p.Attempts)-1].Attempt
	}
	if accepted := p.Accepted(); accepted != nil {
		p.Tries = append(p.Tries, tryRow{Attempt: *accepted})
	}
	for _, a := range slices.Backward(p.Attempts) {
		row := tryRow{Attempt: a, Full: a.Attempt == full}
		if a.Response != nil {
			row.Returned = string(a.Response.State)
		}
		p.Tries = append(p.Tries, row)
	}
	if p.Request.Value.Handler != "" { // only executors of groups of kind xxl_job keep logs
		p.LogAttempt = p.latestAtEndpoint()
	}
}

// latestAtEndpoint returns the number of the latest attempt that reached an endpoint; 0: none did.
func (p *runPage) latestAtEndpoint() (latest int) {
	for _, a := range p.Attempts {
		if a.Response != nil && a.Response.Endpoint != "" {
			latest = a.Attempt
		}
	}
	if p.Callback != nil && p.Callback.Endpoint != "" {
		latest = p.Attempt
	}
	return latest
}

// Began and Until are the ends of the picture of the stages.
func (p runPage) Began() time.Time { return p.Stages[0].From }

// Until is the end of the last stage; see Began.
func (p runPage) Until() time.Time { return p.Stages[len(p.Stages)-1].To }

func (p runPage) Ended() bool { return slices.Contains(kit.FinalStates(), p.Run.State) }

// MayRetry reports whether the run can be attempted again now.
func (p runPage) MayRetry() bool { return p.Ended() || p.Run.State == run.Retrying }

// Explains reports whether the scheduled time is one of a trigger, which can be explained.
func (p runPage) Explains() bool {
	return p.Trigger != "" && p.Kind == run.KindSchedule && p.Parent == ""
}

// MayEnd reports whether a person can end the run instead of the callback.
func (p runPage) MayEnd() bool { return p.Run.State == run.WaitingCallback }

// Lateness returns how late the first attempt began, nil if that is unknown.
func (p runPage) Lateness() *time.Duration {
	var began time.Time
	switch {
	case len(p.Attempts) > 0:
		began = p.Attempts[0].StartedAt
	case p.StartedAt != nil && p.Attempt == 1:
		began = *p.StartedAt
	default:
		return nil
	}
	late := began.Sub(p.ScheduledAt)
	return &late
}

func showMisfires(v *visit) (content, error) {
	f := v.fields()
	query := dispatcher.RunQuery{App: v.PathValue("app"), Job: f.Text("job"), Trigger: f.Text("trigger"), From: f.Instant("from"),
		To: f.Instant("to"), Page: v.page()}
	var list client.List[dispatcher.Misfire]
	err := f.Err()
	if err == nil {
		list, err = v.client.Misfires(v.Context(), query)
	}
	return v.filtered(content{Data: listOf(v, list, f.All("job", "trigger", "from", "to")), Refresh: true}, err)
}

type deadLettersPage struct {
	listPage[run.Run]
	States  []run.State
	Classes []run.Class
	// Replay is the URL of the page that replays all dead letters that the filter selects.
	Replay string
}

var deadLetterFields = []string{"job", "class", "state", "from", "to"}

// given returns the fields that are not empty, for a link or a form.
func given(f *kit.Fields, names ...string) url.Values {
	values := url.Values{}
	for _, name := range names {
		if text := f.Text(name); text != "" {
			values.Set(name, text)
		}
	}
	return values
}

func showDeadLetters(v *visit) (content, error) {
	app, f := v.PathValue("app"), v.fields()
	replay := given(f, deadLetterFields...)
	replay.Set("action", string(repeat.BulkRetryRuns))
	query := repeat.DeadLetterReplay{Job: f.Text("job"), Class: run.Class(f.Text("class")),
		State: run.State(f.Text("state")), From: f.Instant("from"), To: f.Instant("to")}.Query(app)
	query.Page = v.page()
	var list client.List[run.Run]
	err := f.Err()
	if err == nil {
		list, err = v.client.DeadLetters(v.Context(), query)
	}
	page := deadLettersPage{listPage: listOf(v, list, f.All(deadLetterFields...)), States: repeat.DeadLetterStates,
		Classes: slices.Sorted(slices.Values(run.Classes)), Replay: v.linkQuery(replay, "apps", app, "new-bulk")}
	return v.filtered(content{Data: page, Refresh: true}, err)
}

// ofJob is the part of a run's page that its job has, as it is now.
type ofJob struct {
	Runbook string
	// Credential is why the attempt failed if a secret is to blame, and Secrets are those of the job; see view.SecretNames.
	Credential view.CredentialReason
	Secrets    map[string]string
	// Slot is the slot that a run under way has, nil if it has none. Skipped are the fires that it kept from running.
	Slot    *dispatcher.Slot
	Skipped client.List[run.Run]
}

// addJob adds what the job tells of the run. Of a deleted job, and of deliveries, there is nothing to add.
func (p *runPage) addJob(v *visit) {
	if strings.Contains(p.Job, ".") {
		return
	}
	job, err := v.client.Job(v.Context(), p.App, p.Job)
	if err != nil {
		return
	}
	p.OfJob.Runbook = job.RunbookURL
	if p.OfJob.Credential = view.CredentialReasonOf(p.Class, p.HTTPStatus); p.OfJob.Credential != "" {
		p.OfJob.Secrets = view.SecretNames(target.Secrets(job))
	}
	if p.Ended() || job.Slots() == 0 {
		return
	}
	slots, err := v.client.Slots(v.Context(), p.App, p.Job)
	at := slices.IndexFunc(slots.Items, func(s dispatcher.Slot) bool { return s.Run == p.ID })
	if err != nil || at < 0 {
		return
	}
	p.OfJob.Slot = &slots.Items[at]
	p.OfJob.Skipped, _ = v.client.Runs(v.Context(), dispatcher.RunQuery{App: p.App, Job: p.Job, State: run.Skipped,
		From: p.OfJob.Slot.Since, Page: input.Page{Limit: pageOfRuns}})
}

// Says reports whether the attempt has an error that the head of the page does not show.
func (p runPage) Says(a tryRow) bool {
	return a.Error != "" && (a.Attempt.Attempt != p.Run.Attempt || a.Error != p.Error)
}

// Status returns the status of the response; 0 if the error has it.
func (a tryRow) Status() int {
	if strings.Contains(a.Error, strconv.Itoa(a.HTTPStatus)) {
		return 0
	}
	return a.HTTPStatus
}

// Stored reports whether a part of the response is stored that a page can show.
func (a tryRow) Stored() bool {
	r := a.Response
	return r != nil && (len(r.Headers) > 0 || r.Body != "" || r.Omitted != "" || r.LogTail != "" || r.StateProblem != "" || a.Returned != "")
}

// spoken finds the ids of runs and the times in texts of the API.
var spoken = regexp.MustCompile(`\b0[0-9a-v]{23}\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

// prose shows a text of the API with links to its runs, and with its times as the page shows others.
func (v *visit) prose(text, zone string) template.HTML {
	var shown strings.Builder
	at := 0
	for _, found := range spoken.FindAllStringIndex(text, -1) {
		shown.WriteString(string(kit.Markup("", text[at:found[0]])))
		at = found[1]
		part := text[found[0]:at]
		if instant, err := input.ParseInstant(part); err == nil {
			shown.WriteString(string(v.TimeHTML(instant, zone)))
		} else {
			shown.WriteString(string(v.runHTML(part)))
		}
	}
	shown.WriteString(string(kit.Markup("", text[at:])))
	return template.HTML(shown.String()) //nolint:gosec // every text in it is escaped
}
