package api

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// listAlerts lists the alerts of an app by name.
func (a *API) listAlerts(r *request) (response, error) {
	name := func(alert alert.Alert) string { return alert.Name }
	return pagedByName(r, name, func(page input.Page) ([]alert.Alert, error) {
		return a.store.Alerts(r.Context(), r.PathValue("app"), page)
	})
}

// getAlert gets an alert.
func (a *API) getAlert(r *request) (response, error) {
	alert, err := a.store.Alert(r.Context(), r.PathValue("app"), r.PathValue("alert"))
	return response{revision: alert.Revision, body: alert}, err
}

// putAlert creates or replaces an alert. Conditions that the alert no longer watches end as resolved.
func (a *API) putAlert(r *request) (response, error) {
	one := alert.Alert{App: r.PathValue("app"), Name: r.PathValue("alert")}
	problems := r.Decode(&one)
	mustMatch(&problems, "/app", one.App, r.PathValue("app"))
	mustMatch(&problems, "/name", one.Name, r.PathValue("alert"))
	return put(a, r, one, problems, a.store.PutAlert, func(stored alert.Alert) int64 { return stored.Revision })
}

// deleteAlert deletes an alert. Pending notifications are not delivered. The events stay.
func (a *API) deleteAlert(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		return a.store.DeleteAlert(r.Context(), r.PathValue("app"), r.PathValue("alert"), change)
	})
}

// muteAlert mutes the notifications of an alert for a time. Transitions are still recorded. Conditions that still hold
// when the mute ends are notified then. It replaces an existing mute.
//
// muteAlert and the routes below take no condition: a mute or an acknowledgement makes no revision.
func (a *API) muteAlert(r *request) (response, error) {
	var mute alert.Mute
	problems := r.DecodeIfAny(&mute)
	decode.AddInvalid(&problems, mute.Validate())
	if err := r.acceptable(problems); err != nil {
		return response{}, err
	}
	change := r.By()
	change.Reason = mute.Reason
	alert, err := a.store.MuteAlert(r.Context(), r.PathValue("app"), r.PathValue("alert"), mute, change)
	return response{revision: alert.Revision, body: alert}, err
}

// unmuteAlert lifts the mute of an alert. Mute windows of the definition stay.
func (a *API) unmuteAlert(r *request) (response, error) {
	if err := r.acceptable(nil); err != nil {
		return response{}, err
	}
	alert, err := a.store.UnmuteAlert(r.Context(), r.PathValue("app"), r.PathValue("alert"), r.By())
	return response{revision: alert.Revision, body: alert}, err
}

// acknowledgeAlert acknowledges a condition that holds for a job. Reminders stop. The end of the condition is still
// notified. 409: no condition holds for the job.
func (a *API) acknowledgeAlert(r *request) (response, error) {
	var asked alert.Acknowledgement
	problems := r.Decode(&asked)
	decode.AddInvalid(&problems, asked.Validate())
	if err := r.acceptable(problems); err != nil {
		return response{}, err
	}
	change := r.By()
	change.Reason = asked.Reason
	states, err := a.store.AcknowledgeAlert(r.Context(), r.PathValue("app"), r.PathValue("alert"), asked, change)
	return response{body: newList(states)}, conflict(err, "list what holds with carillon alert firing")
}

// alertWithdrawal is a request to take back acknowledgements.
type alertWithdrawal struct {
	Job string `json:"job" schema:"Name,required"`
	// Left out: all conditions of the job.
	Condition target.AlertCondition `json:"condition,omitempty"`
}

// withdrawAcknowledgement takes back an acknowledgement. Without a condition, it takes back all of the job. No
// notification is sent. 409: no condition of the job is acknowledged.
func (a *API) withdrawAcknowledgement(r *request) (response, error) {
	var asked alertWithdrawal
	problems := r.Decode(&asked)
	ack := alert.Acknowledgement{Job: asked.Job, Condition: asked.Condition}
	decode.AddInvalid(&problems, ack.Validate())
	if err := r.acceptable(problems); err != nil {
		return response{}, err
	}
	states, err := a.store.WithdrawAcknowledgement(r.Context(), r.PathValue("app"), r.PathValue("alert"), ack, r.By())
	return response{body: newList(states)}, conflict(err, "list what is acknowledged with carillon alert firing")
}

// testAlert sends a test notification. It works even while the alert is muted. The response is the run that delivers
// the notification.
func (a *API) testAlert(r *request) (response, error) {
	if err := r.acceptable(nil); err != nil {
		return response{}, err
	}
	if _, err := a.gate.Revision(r.Request); err != nil { // a missing alert comes before a disabled app
		return response{}, err
	}
	if err := a.checkEnabled(r, r.PathValue("app")); err != nil {
		return response{}, err
	}
	run, err := a.store.TestAlert(r.Context(), r.PathValue("app"), r.PathValue("alert"), r.By())
	return response{status: http.StatusAccepted, body: run}, err
}

// acceptable returns problems as an error, or else that of a condition, which only definitions can have.
func (r *request) acceptable(problems input.Problems) error {
	if err := problems.Err(); err != nil {
		return err
	}
	return noCondition(r, "a mute, an acknowledgement or a test of an alert")
}

// listAlertStates lists the states of alerts, by alert, job and condition.
func (a *API) listAlertStates(r *request) (response, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := alert.StateQuery{
		App: r.PathValue("app"), Alert: values.Get("alert"), Job: values.Get("job"), Page: r.page(&problems, isAlertStateCursor),
	}
	r.checkNames(&problems, "alert", "job")
	switch firing := values.Get("firing"); {
	case !values.Has("firing") || firing == "false":
	case firing == "true":
		query.Firing = true
	default:
		input.CheckEnum(&problems, "/firing", "firing", firing, []string{"true", "false"})
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	key := func(s alert.State) string { return s.Cursor() }
	return paged(query.Page, key, func(page input.Page) ([]alert.State, error) {
		query.Page = page
		return a.store.AlertStates(r.Context(), query)
	})
}

// listAlertEvents lists transitions of alerts, latest first. They are kept as long as the history of the app, even if
// their alert or job is deleted.
func (a *API) listAlertEvents(r *request) (response, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := alert.EventQuery{
		App: r.PathValue("app"), Alert: values.Get("alert"), Job: values.Get("job"),
		From: r.instant(&problems, "from"), To: r.instant(&problems, "to"), Page: r.page(&problems, alertEventCursor.MatchString),
	}
	r.checkNames(&problems, "alert", "job")
	checkOrder(&problems, query.From, query.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	key := func(e alert.Event) string { return e.Cursor }
	return paged(query.Page, key, func(page input.Page) ([]alert.Event, error) {
		query.Page = page
		return a.store.AlertEvents(r.Context(), query)
	})
}

// checkNames reports query parameters that are given and are not names.
func (r *request) checkNames(problems *input.Problems, parameters ...string) {
	values := r.URL.Query()
	for _, name := range parameters {
		if values.Has(name) {
			input.CheckName(problems, "/"+name, values.Get(name))
		}
	}
}

// isAlertStateCursor reports whether text is the key of a state: alert, job and condition.
func isAlertStateCursor(text string) bool {
	parts := strings.Split(text, "/")
	return len(parts) == 3 && input.IsName(parts[0]) && input.IsName(parts[1]) && input.IsName(parts[2])
}

// alertEventCursor is the form of the key of an event.
var alertEventCursor = regexp.MustCompile(`^[A-Za-z0-9_./:-]{1,256}$`)
