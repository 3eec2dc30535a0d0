package console

import (
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// alertsPage is the alerts of an app, their firing conditions, and the latest events.
type alertsPage struct {
	client.List[alert.Alert]
	App, More string
	Firing    client.List[alert.State]
	Events    client.List[alert.Event]
}

func showAlerts(v *visit) (content, error) {
	page := alertsPage{App: v.PathValue("app")}
	var err error
	if page.List, err = v.client.Alerts(v.Context(), page.App, v.page()); err != nil {
		return content{}, err
	}
	page.More = v.more(page.Next)
	first := input.Page{Limit: 20}
	page.Firing, err = v.client.AlertStates(v.Context(), alert.StateQuery{App: page.App, Firing: true, Page: first})
	if err != nil {
		return content{}, err
	}
	page.Events, err = v.client.AlertEvents(v.Context(), alert.EventQuery{App: page.App, Page: first})
	return content{Data: page, Refresh: true}, err
}

// alertPage is one alert with its states of jobs, and its events.
type alertPage struct {
	alert.Alert
	// Conditions are the conditions that it watches, by their words and how long or often.
	Conditions []fact
	// To is the destination of notifications.
	To     string
	States client.List[alert.State]
	Events client.List[alert.Event]
	More   string
}

func showAlert(v *visit) (content, error) {
	app, name := v.PathValue("app"), v.PathValue("alert")
	a, err := v.client.Alert(v.Context(), app, name)
	if err != nil {
		return content{}, err
	}
	page := alertPage{Alert: a, Conditions: v.conditionsOf(a), To: a.Destination.Name()}
	first := input.Page{Limit: pageLength}
	page.States, err = v.client.AlertStates(v.Context(), alert.StateQuery{App: app, Alert: name, Firing: true, Page: first})
	if err != nil {
		return content{}, err
	}
	page.Events, err = v.client.AlertEvents(v.Context(), alert.EventQuery{App: app, Alert: name, Page: v.page()})
	page.More = v.more(page.Events.Next)
	return content{Title: v.Texts.Text("alert.title", "alert", name), Data: page, Refresh: true}, err
}

func (v *visit) conditionsOf(alert alert.Alert) (all []fact) {
	if alert.Failure != nil {
		text := v.Texts.Text("condition.failure.after", "n", alert.Failure.After)
		if every := alert.Failure.RepeatEvery; every > 0 {
			text += v.Texts.Text("condition.failure.repeat", "n", every)
		}
		all = append(all, v.fact("condition.failure", text))
	}
	if alert.Missed {
		all = append(all, v.fact("condition.missed", v.Texts.Text("condition.yes")))
	}
	for _, one := range []struct {
		key   string
		after input.Duration
	}{{"condition.late", alert.LateAfter}, {"condition.overrun", alert.OverrunAfter}, {"condition.no_success", alert.NoSuccessFor}} {
		if one.after > 0 {
			all = append(all, v.fact(one.key, v.Texts.Duration(one.after)))
		}
	}
	if alert.Objective {
		all = append(all, v.fact("condition.objective", v.Texts.Text("condition.yes")))
	}
	if alert.Blocked {
		all = append(all, v.fact("condition.blocked", v.Texts.Text("condition.yes")))
	}
	if w := alert.Destination.Webhook; w != nil && w.Severity != "" {
		all = append(all, v.fact("alert.severity", string(w.Severity)))
	}
	if !alert.Recovery {
		all = append(all, v.fact("alert.recovery", v.Texts.Text("alert.recovery.no")))
	}
	return all
}

func (v *visit) alertDone(notice string) done {
	app, name := v.PathValue("app"), v.PathValue("alert")
	return done{to: v.link("apps", app, "alerts", name), notice: notice, values: []any{"alert", name}}
}

func muteAlert(v *visit) (done, error) {
	f := v.fields()
	mute := alert.Mute{Reason: f.Text("reason"), Until: f.Until("for", v.Now)}
	if err := f.Err(); err != nil {
		return done{}, err
	}
	_, err := v.client.MuteAlert(v.Context(), v.PathValue("app"), v.PathValue("alert"), mute)
	return v.alertDone("alert.notice.muted"), err
}

func unmuteAlert(v *visit) (done, error) {
	_, err := v.client.UnmuteAlert(v.Context(), v.PathValue("app"), v.PathValue("alert"))
	return v.alertDone("alert.notice.unmuted"), err
}

func acknowledgeAlert(v *visit) (done, error) {
	f := v.fields()
	ack := alert.Acknowledgement{Job: f.Text("job"), Condition: target.AlertCondition(f.Text("condition")),
		Reason: f.Text("reason"), Until: f.Until("for", v.Now)}
	if err := f.Err(); err != nil {
		return done{}, err
	}
	_, err := v.client.AcknowledgeAlert(v.Context(), v.PathValue("app"), v.PathValue("alert"), ack)
	return v.alertDone("alert.notice.acknowledged"), err
}

func withdrawAcknowledgement(v *visit) (done, error) {
	f := v.fields()
	_, err := v.client.WithdrawAcknowledgement(v.Context(), v.PathValue("app"), v.PathValue("alert"), f.Text("job"),
		target.AlertCondition(f.Text("condition")))
	return v.alertDone("alert.notice.withdrawn"), err
}

func testAlert(v *visit) (done, error) {
	run, err := v.client.TestAlert(v.Context(), v.PathValue("app"), v.PathValue("alert"))
	return done{to: v.link("runs", run.ID), notice: "alert.notice.tested"}, err
}
