package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// runJobPage asks for confirmation to run a job now.
type runJobPage struct {
	dispatcher.Job
	// Own is the payload of the job, as text.
	Own string
}

// showRunJob asks before a job runs by hand.
func showRunJob(v *visit) (content, error) {
	job, err := v.client.Job(v.Context(), v.PathValue("app"), v.PathValue("job"))
	if err != nil {
		return content{}, err
	}
	page := runJobPage{Job: job, Own: string(job.Payload)}
	return content{Title: v.Texts.Text("run_job.title", "job", job.App+"/"+job.Name), Data: page}, nil
}

func runJob(v *visit) (done, error) {
	asked := dispatcher.RunRequest{}
	if payload := strings.TrimSpace(v.PostForm.Get("payload")); payload != "" {
		if !json.Valid([]byte(payload)) {
			var problems input.Problems
			problems.Add("/payload", input.CodeJSONSyntax,
				`payload is not JSON; write a value such as {"day": "2026-05-01"}, or leave it empty`)
			return done{}, problems
		}
		asked.Payload = json.RawMessage(payload)
	}
	run, err := v.client.RunJobWith(v.Context(), v.PathValue("app"), v.PathValue("job"), asked)
	if err != nil {
		return done{}, err
	}
	return done{to: v.link("runs", run.ID), notice: "run_job.done", values: []any{"job", run.App + "/" + run.Job}}, nil
}

// pauseJob pauses the job, or the trigger if the path names one.
func pauseJob(v *visit) (done, error) {
	until, err := untilOf(v.PostForm.Get("until"), v.Now)
	if err != nil {
		return done{}, err
	}
	seen, err := v.seen()
	if err != nil {
		return done{}, err
	}
	of := client.Pausable{App: v.PathValue("app"), Job: v.PathValue("job"), Trigger: v.PathValue("trigger")}
	why := dispatcher.PauseRequest{Reason: strings.TrimSpace(v.PostForm.Get("reason")), Until: until}
	if _, err := v.client.PauseJob(v.Context(), of, why, seen); err != nil {
		return done{}, err
	}
	return done{to: v.link("apps", of.App, "jobs", of.Job), notice: "job.paused", values: []any{"name", of.String()}}, nil
}

// resumeJob ends the pause of the job, or of the trigger if the path names one.
func resumeJob(v *visit) (done, error) {
	seen, err := v.seen()
	if err != nil {
		return done{}, err
	}
	of := client.Pausable{App: v.PathValue("app"), Job: v.PathValue("job"), Trigger: v.PathValue("trigger")}
	if _, err := v.client.ResumeJob(v.Context(), of, seen); err != nil {
		return done{}, err
	}
	return done{to: v.link("apps", of.App, "jobs", of.Job), notice: "job.resumed", values: []any{"name", of.String()}}, nil
}

// seen is the condition that the object of a form is as on the page with the form. So what somebody else has done in the
// meantime is shown, not replaced.
func (v *visit) seen() (client.Condition, error) {
	f := v.fields()
	revision := f.Number("revision", 0)
	return client.Condition{Revision: int64(revision)}, f.Err()
}

// untilOf returns the time in a form: a duration from now, or a time with its zone. It is nil if the form is empty.
func untilOf(text string, now time.Time) (*time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	if d, err := input.ParseDuration(text); err == nil {
		until := now.Add(d.Std())
		return &until, nil
	}
	at, err := input.ParseInstant(text)
	if err != nil {
		var problems input.Problems
		problems.Add("/until", input.CodeTimeInvalid, "until %s is neither a duration such as 2h nor a time with its zone such as "+
			"2026-05-01T06:00:00+02:00; leave it empty for a pause that somebody has to end", input.Echo(text))
		return nil, problems
	}
	return &at, nil
}

// showCancelRun asks before a run is cancelled: the work that its target has begun goes on, and the result is not kept.
func showCancelRun(v *visit) (content, error) {
	run, err := v.client.Run(v.Context(), v.PathValue("run"))
	if err != nil {
		return content{}, err
	}
	return content{Title: v.Texts.Text("cancel_run.title", "job", run.App+"/"+run.Job), Data: runPage{Run: run}}, nil
}

// showSlotRelease asks before the slot of a run is freed. A run that has not ended is cancelled.
func showSlotRelease(v *visit) (content, error) {
	run, err := v.client.Run(v.Context(), v.PathValue("run"))
	if err != nil {
		return content{}, err
	}
	name, fields := "slot_release", url.Values{}
	if run.EndedAt == nil {
		name, fields = "slot_cancel", url.Values{"cancel": {"yes"}}
	}
	return v.confirm(name, confirmPage{Fields: fields, Asks: []ask{v.ask("reason", "field.reason", "")}, Harm: true,
		Back: v.link("apps", run.App, "jobs", run.Job)}, "run", run.ID, "job", run.App+"/"+run.Job), nil
}

// releaseSlot frees the slot of a run of the job.
func releaseSlot(v *visit) (done, error) {
	app, job := v.PathValue("app"), v.PathValue("job")
	_, err := v.client.ReleaseSlot(v.Context(), app, job, run.SlotRelease{Run: v.PathValue("run"),
		Reason: strings.TrimSpace(v.PostForm.Get("reason")), Cancel: v.PostForm.Has("cancel")})
	return done{to: v.link("apps", app, "jobs", job), notice: "job.slot.released"}, err
}

// changeRun returns the action that cancels or retries a run.
func changeRun(change func(*client.Client, context.Context, string) (run.Run, error), notice string) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		run, err := change(v.client, v.Context(), v.PathValue("run"))
		return done{to: v.link("runs", run.ID), notice: notice}, err
	}
}

// chosenRuns are the actions on runs that a person has ticked, by the value of the button, with the keys of their texts.
var chosenRuns = map[string]struct {
	change          func(*client.Client, context.Context, string) (run.Run, error)
	confirm, notice string
}{
	"retry":  {(*client.Client).RetryRun, "chosen_retry", "chosen.retried"},
	"cancel": {(*client.Client).CancelRun, "chosen_cancel", "chosen.cancelled"},
}

// chosen returns the ticked runs and the action on them.
func (v *visit) chosen() (ids []string, action string, err error) {
	form := v.URL.Query()
	if v.Method == http.MethodPost {
		form = v.PostForm
	}
	ids, action = form["run"], form.Get("do")
	if chosenRuns[action].change == nil || len(ids) == 0 || len(ids) > pageOfRuns {
		err = &pageError{status: http.StatusUnprocessableEntity, key: "chosen.none", values: []any{"most", pageOfRuns}}
	}
	return ids, action, err
}

// showChosenRuns asks before the ticked runs are retried or cancelled.
func showChosenRuns(v *visit) (content, error) {
	ids, action, err := v.chosen()
	if err != nil {
		return content{}, err
	}
	page := confirmPage{Harm: action == "cancel", Back: v.next(v.query("back")),
		Fields: url.Values{"run": ids, "do": {action}, "back": {v.query("back")}}}
	for i, id := range ids {
		page.Facts = append(page.Facts, fact{strconv.Itoa(i + 1), v.runHTML(id)})
	}
	return v.confirm(chosenRuns[action].confirm, page), nil
}

// changeChosenRuns retries or cancels the ticked runs one by one. It goes on after one that refuses, and says why.
func changeChosenRuns(v *visit) (done, error) {
	ids, action, err := v.chosen()
	if err != nil {
		return done{}, err
	}
	changed, refused := 0, ""
	for _, id := range ids {
		if _, err := chosenRuns[action].change(v.client, v.Context(), id); err == nil {
			changed++
		} else if refused == "" {
			refused = id + ": " + err.Error()
		}
	}
	result := done{to: v.next(v.PostForm.Get("back")), notice: chosenRuns[action].notice, values: []any{"n", changed}}
	if refused != "" {
		result.notice, result.values = "chosen.refused", []any{"n", len(ids) - changed, "done", changed, "why", refused}
	}
	return result, nil
}

// endRun returns the action that ends a run instead of the callback for which it waits.
func endRun(
	end func(_ *client.Client, _ context.Context, id, message string) (run.CallbackReply, error), notice string,
) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		reply, err := end(v.client, v.Context(), v.PathValue("run"), v.PostForm.Get("message"))
		return done{to: v.link("runs", reply.Run), notice: notice}, err
	}
}

// confirmPage asks before an irreversible action, or one on many objects. Its form goes to the URL of the page itself,
// so that the action has the path of its screen.
type confirmPage struct {
	// Text describes the action, and Facts its object.
	Text  string
	Facts []fact
	// Fields are sent as they are, and Asks are filled in.
	Fields url.Values
	Asks   []ask
	// Button is the label of the button. Harm means that it destroys something.
	Button string
	Harm   bool
	// Back is a link to the page before.
	Back string
}

// fact is one line of information before a person agrees.
type fact struct {
	Name  string
	Value any
}

// ask is a field of a confirmation that a person fills in.
type ask struct{ Name, Label, Hint, Value string }

// confirm returns the confirmation page. title, text and button are keys of texts; values are for all three.
func (v *visit) confirm(name string, page confirmPage, values ...any) content {
	page.Text = v.Texts.Text(name+".text", values...)
	page.Button = v.Texts.Text(name + ".button")
	return content{Title: v.Texts.Text(name+".title", values...), Data: page}
}

// fact returns a fact; key is that of its label.
func (v *visit) fact(key string, value any) fact { return fact{v.Texts.Text(key), value} }

// ask returns a field to fill in; key is that of its label, and KEY.hint that of its hint.
func (v *visit) ask(name, key, value string) ask {
	hint := ""
	if v.Texts.Has(key + ".hint") {
		hint = v.Texts.Text(key + ".hint")
	}
	if v.PostForm != nil {
		value = v.PostForm.Get(name)
	}
	return ask{Name: name, Label: v.Texts.Text(key), Hint: hint, Value: value}
}

// noticeLife is how long a notice waits for the next page.
const noticeLife = time.Minute

// notice is a message that the next page shows once.
type notice struct {
	Key    string   `json:"k"`
	Values []string `json:"v"`
}

// setNotice leaves a notice for the next page.
func (v *visit) setNotice(key string, values []any) {
	n := notice{Key: key}
	for _, value := range values {
		n.Values = append(n.Values, kit.TextOf(value))
	}
	raw, err := json.Marshal(n)
	if err != nil || len(raw) > 2<<10 {
		return
	}
	v.setCookie(noticeCookie, base64.RawURLEncoding.EncodeToString(raw), noticeLife)
}

// takeNotice removes and returns the notice for this page; empty: there is none.
func (v *visit) takeNotice() string {
	raw, err := base64.RawURLEncoding.DecodeString(v.cookie(noticeCookie))
	var n notice
	if err != nil || len(raw) == 0 || json.Unmarshal(raw, &n) != nil || !v.Texts.Has(n.Key) {
		return ""
	}
	v.setCookie(noticeCookie, "", 0)
	values := make([]any, len(n.Values))
	for i, value := range n.Values {
		values[i] = value
	}
	return v.Texts.Text(n.Key, values...)
}
