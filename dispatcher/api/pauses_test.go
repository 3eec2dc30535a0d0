package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const appPauses = oneApp + "/pauses"

func TestPausesOfAppsAreAddedListedAndEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.must(http.StatusCreated, "PUT", oneJob, strings.Replace(validJob, "{", `{"labels":{"team":"payments"},`, 1))
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	body := fmt.Sprintf(`{"labels":{"team":"payments"},"reason":"a migration","until":%q}`, until.Format(time.RFC3339))
	pause := into[dispatcher.AppPause](w.must(http.StatusCreated, "POST", appPauses, body))
	if pause.ID == "" || pause.App != "crm" || pause.Labels["team"] != "payments" || pause.Reason != "a migration" ||
		pause.Until == nil || !pause.Until.Equal(until) || pause.PausedBy == "" || pause.PausedAt.IsZero() || pause.Pending {
		t.Errorf("the pause is %+v", pause)
	}
	job := into[dispatcher.Job](w.must(http.StatusOK, "GET", oneJob, ""))
	if len(job.Pauses) != 1 || job.Pauses[0].ID != pause.ID || job.Paused || job.Triggers["nightly"].State != dispatcher.TriggerPaused {
		t.Errorf("the job shows the pauses %+v, paused %t, and its trigger in state %s", job.Pauses, job.Paused, job.Triggers["nightly"].State)
	}
	if app := into[access.App](w.must(http.StatusOK, "GET", oneApp, "")); len(app.Pauses) != 1 || app.Revision != 1 {
		t.Errorf("the app shows the pauses %+v, and has revision %d", app.Pauses, app.Revision)
	}
	whole := into[dispatcher.AppPause](w.must(http.StatusCreated, "POST", appPauses, ""))
	list := into[struct{ Items []dispatcher.AppPause }](w.must(http.StatusOK, "GET", appPauses, ""))
	if len(list.Items) != 2 || list.Items[0].ID != pause.ID || list.Items[1].ID != whole.ID {
		t.Errorf("listed are %+v, want both in their order", list.Items)
	}
	for _, id := range []string{pause.ID, whole.ID} {
		w.must(http.StatusNoContent, "DELETE", appPauses+"/"+id, "")
	}
	if job := into[dispatcher.Job](w.must(http.StatusOK, "GET", oneJob, "")); len(job.Pauses) != 0 ||
		job.Triggers["nightly"].State != dispatcher.TriggerWaiting {
		t.Errorf("after its pauses the job shows %+v, and its trigger in state %s", job.Pauses, job.Triggers["nightly"].State)
	}
	w.do("DELETE", appPauses+"/"+pause.ID, "").refused(404, " not_found")
}

func TestWrongPausesOfAppsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.do("POST", appPauses, `{"labels":{"te am":"x"},"reason":"`+strings.Repeat("x", 1025)+`"}`).
		refused(422, "/labels/te am label_format", "/reason text_too_long")
	w.do("POST", appPauses, `{"until":"2020-05-01T10:00:00Z"}`).refused(422, "/until at_past")
	w.do("POST", appPauses, `{"label":"team=x"}`).refused(400, "/label json_unknown_field")
	w.do("POST", appPauses, "", `If-Match: "1"`).refused(412, " precondition_failed")
	w.do("POST", "/v1/apps/nosuch/pauses", "").refused(404, " not_found")
	w.do("GET", "/v1/apps/nosuch/pauses", "").refused(404, " not_found")
}

// Even if the jobs do not fit into one transaction, all are paused with the response.
func TestPauseOfManyJobsIsDoneWithTheResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	for i := range 27 {
		job := dispatcher.Job{App: "crm", Name: fmt.Sprint("job-", i),
			JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
		job.Target.Webhook = &target.Webhook{URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout}
		for k := range dispatcher.MaxTriggers {
			trigger := dispatcher.Trigger{}
			trigger.SetDefaults()
			trigger.Expression = "rate(1h)"
			job.Triggers[fmt.Sprint("t", k)] = trigger
		}
		if _, _, err := w.store.PutJob(t.Context(), job, input.Change{Actor: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		change func()
		want   int
	}{
		{func() {
			if into[dispatcher.AppPause](w.must(http.StatusCreated, "POST", appPauses, "")).Pending {
				t.Error("the pause is pending when the response comes")
			}
		}, 0},
		{func() { w.must(http.StatusNoContent, "DELETE", appPauses+"/"+w.pauseID(), "") }, 2700},
	} {
		step.change()
		n, err := w.store.Upcoming(t.Context(), nil, time.Now().Add(2*time.Hour), 10_000)
		if err != nil || n != step.want {
			t.Errorf("%d triggers are due in two hours, %v, want %d", n, err, step.want)
		}
	}
}
