package target

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func failureNotification() AlertNotification {
	at := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	return AlertNotification{
		Installation: "db1",
		App:          "payments", Alert: "on-call", Job: "settle", Condition: AlertFailure, Transition: AlertFiring, At: at.Add(time.Minute),
		Since: at.Add(time.Minute), Count: 1, Trigger: "nightly", Run: "r1", Class: run.ClassHTTP5xx, Error: "status 503", ScheduledAt: &at,
		Labels: input.Labels{"team": "money"}, Sequence: 3,
	}
}

func TestTitlesOfNotifications(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(n *AlertNotification){
		"Job payments/settle failed":                         func(*AlertNotification) {},
		"Job payments/settle failed 3 times in a row":        func(n *AlertNotification) { n.Count = 3 },
		"Job payments/settle still fails: 8 times in a row":  func(n *AlertNotification) { n.Count, n.Transition = 8, AlertStillFiring },
		"Job payments/settle succeeds again after 1 failure": func(n *AlertNotification) { n.Transition = AlertResolved },
		"Job payments/settle missed 132 fires, and misses no more": func(n *AlertNotification) {
			n.Condition, n.Transition, n.Count = AlertMissed, AlertResolved, 132
		},
		"Alert on-call of job payments/settle (failure) has ended: the job was deleted": func(n *AlertNotification) {
			n.Transition, n.Reason = AlertResolved, "the job was deleted"
		},
		"Job payments/settle missed a fire: node a could not reach the database": func(n *AlertNotification) {
			n.Condition, n.Error = AlertMissed, "node a could not reach the database"
		},
		"Job payments/settle is late by 1m30s: it waits for a slot of its job": func(n *AlertNotification) {
			n.Condition, n.LateBy, n.Error = AlertLate, input.Duration(90*time.Second+147*time.Millisecond), "it waits for a slot of its job"
		},
		"Job payments/settle was late, and is no longer": func(n *AlertNotification) { n.Condition, n.Transition = AlertLate, AlertResolved },
		"Job payments/settle has run for 1m4s, allowed are 1m0s": func(n *AlertNotification) {
			n.Condition, n.Error = AlertOverrun, "has run for 1m4s, allowed are 1m0s"
		},
		"Test of alert payments/on-call": func(n *AlertNotification) { n.Transition = AlertTest },
		"Job payments/settle has not succeeded since 2026-03-01T02:01:00.000Z": func(n *AlertNotification) {
			n.Condition, n.Error = AlertNoSuccess, "has not succeeded since 2026-03-01T02:01:00.000Z"
		},
		"Alert on-call of job payments/settle (failure) was acknowledged by ann  b": func(n *AlertNotification) {
			n.Transition, n.By = AlertAcknowledged, "ann\r\nb"
		},
	} {
		n := failureNotification()
		change(&n)
		if got := n.Title(); got != want {
			t.Errorf("title is %q, want %q", got, want)
		}
	}
}

// slackTexts returns all texts of a message.
func slackTexts(t *testing.T, body []byte) (message slackMessage, texts []string) {
	t.Helper()
	if err := json.Unmarshal(body, &message); err != nil {
		t.Fatalf("message is no JSON: %v\n%s", err, body)
	}
	texts = append(texts, message.Text)
	for _, a := range message.Attachments {
		texts = append(texts, a.Fallback)
		for _, b := range a.Blocks {
			for _, f := range b.Fields {
				texts = append(texts, f.Text)
			}
			if b.Text != nil {
				texts = append(texts, b.Text.Text)
			}
		}
	}
	return message, texts
}

func TestNamesAndErrorsCannotFormatSlackMessages(t *testing.T) {
	t.Parallel()
	const hostile = "<!channel> <@U123> <https://evil.example|click> *bold* @here & \"quoted\"\n\x00:tada:"
	n := failureNotification()
	n.Error, n.By, n.Reason, n.Labels = hostile, hostile, hostile, input.Labels{"a": hostile}
	for _, n.Transition = range []AlertTransition{AlertFiring, AlertAcknowledged} {
		message, texts := slackTexts(t, n.Slack())
		for _, text := range texts {
			if strings.ContainsAny(text, "<>\x00") {
				t.Errorf("text %q has a control character of Slack", text)
			}
		}
		if message.Markdown {
			t.Error("the text is read as mrkdwn")
		}
		for _, b := range message.Attachments[0].Blocks {
			for _, f := range b.Fields {
				if f.Type != "plain_text" || *f.Emoji {
					t.Errorf("field is %+v, want plain text without emoji", f)
				}
			}
		}
	}
	_, texts := slackTexts(t, failureNotificationWith("a & <b>").Slack())
	if got, want := texts[len(texts)-1], "a &amp; &lt;b&gt;"; got != want {
		t.Errorf("error is shown as %q, want %q", got, want)
	}
}

func failureNotificationWith(err string) AlertNotification {
	n := failureNotification()
	n.Error = err
	return n
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for name, char := range map[string]string{"escaped": "&", "two bytes": "ü", "four bytes": "🙂", "not UTF-8": "\xffü"} {
		for extra := range 7 {
			text := strings.Repeat("x", extra) + strings.Repeat(char, 70_000)
			n := failureNotificationWith(text)
			_, texts := slackTexts(t, n.Slack())
			shown := texts[len(texts)-1]
			if len(shown) > slackError || len(shown) < slackError-20 || !utf8.ValidString(shown) || !strings.HasSuffix(shown, "…") {
				t.Errorf("%s: error is cut to %d bytes that end in %q", name, len(shown), shown[len(shown)-8:])
			}
			if rest := strings.ReplaceAll(shown, "&amp;", ""); char == "&" && strings.Contains(rest, "&") {
				t.Errorf("an escape is cut: %q", shown[len(shown)-8:])
			}
			event := pagerDutyOf(t, n, "")
			if s := event.Payload.Summary; len(s) > pagerDutySummary || !utf8.ValidString(s) || !strings.HasSuffix(s, "…") {
				t.Errorf("%s: summary has %d bytes and ends in %q", name, len(s), s[len(s)-8:])
			}
			if e := event.Payload.CustomDetails.Error; len(e) > pagerDutyError {
				t.Errorf("%s: details have an error of %d bytes", name, len(e))
			}
		}
	}
}

func TestMessagesToSlackStayBelowItsLimit(t *testing.T) {
	t.Parallel()
	const refused = 13_000 // characters of all blocks; measured by others, see slackError
	n := failureNotificationWith(strings.Repeat("<", 100_000))
	n.Reason, n.By, n.Labels = n.Error, n.Error, input.Labels{"long": n.Error}
	if body := n.Slack(); len(body) > refused {
		t.Errorf("message has %d bytes", len(body))
	}
}

func pagerDutyOf(t *testing.T, n AlertNotification, severity AlertSeverity) (event pagerDutyEvent) {
	t.Helper()
	if err := json.Unmarshal(n.PagerDuty("key", severity), &event); err != nil {
		t.Fatal(err)
	}
	return event
}

func TestPagerDutyGetsOneIncidentOfEachCondition(t *testing.T) {
	t.Parallel()
	n := failureNotification()
	keys := map[string]bool{}
	for transition, action := range map[AlertTransition]string{
		AlertFiring: "trigger", AlertStillFiring: "trigger", AlertAcknowledged: "acknowledge", AlertResolved: "resolve",
	} {
		n.Transition = transition
		event := pagerDutyOf(t, n, "")
		keys[event.DedupKey] = true
		if event.EventAction != action || event.RoutingKey != "key" {
			t.Errorf("%s is sent as %+v, want action %s", transition, event, action)
		}
		if (event.Payload != nil) != (action == "trigger") {
			t.Errorf("%s has payload %+v", transition, event.Payload)
		}
	}
	if want := map[string]bool{"carillon/db1/payments/on-call/settle/failure": true}; !cmp.Equal(keys, want) {
		t.Errorf("dedup keys are %v, want %v", keys, want)
	}
	n.Transition = AlertFiring
	event := pagerDutyOf(t, n, AlertCritical)
	got := fmt.Sprint(event.Payload.Summary, "|", event.Payload.Source, "|", event.Payload.Severity, "|", event.Payload.Timestamp)
	if want := "Job payments/settle failed: status 503|carillon/payments|critical|2026-03-01T02:01:00.000Z"; got != want {
		t.Errorf("event is %s, want %s", got, want)
	}
	n.Transition, n.Job = AlertTest, ""
	test := pagerDutyOf(t, n, AlertCritical)
	if test.Payload.Severity != AlertInfo || keys[test.DedupKey] {
		t.Errorf("a test is sent as %+v, want an incident of its own of severity info", test)
	}
	n.Transition = AlertResolved
	if event = pagerDutyOf(t, n, AlertCritical); event.EventAction != "resolve" || event.DedupKey != test.DedupKey {
		t.Errorf("the end of a test is sent as %+v, want its incident %s resolved", event, test.DedupKey)
	}
	if got, want := n.Title(), "Test of alert payments/on-call has ended"; got != want {
		t.Errorf("title is %q, want %q", got, want)
	}
}

func TestMessagesLinkToTheConsoleAndTheRunbook(t *testing.T) {
	t.Parallel()
	n := failureNotification()
	n.RunbookURL = "https://wiki.example.com/settle?a=1&b=<2>|3"
	if body := string(n.Slack()); strings.Contains(body, "/console/") || !strings.Contains(body, "|Runbook") {
		t.Errorf("without a URL of the console, Slack gets %s, want the runbook alone", body)
	}
	console, _ := url.Parse("https://ops.example.com/carillon")
	n = n.From("db2", console)
	const at = "https://ops.example.com/carillon/console/"
	want := AlertLinks{Run: at + "runs/r1", Job: at + "apps/payments/jobs/settle", Alert: at + "apps/payments/alerts/on-call"}
	if diff := cmp.Diff(&want, n.Links); diff != "" || n.Installation != "db2" {
		t.Errorf("installation %s, links (-want +got):\n%s", n.Installation, diff)
	}
	message, _ := slackTexts(t, n.Slack())
	blocks := message.Attachments[0].Blocks
	links := blocks[len(blocks)-1].Text
	if want := "<" + want.Run + "|Run> · <https://wiki.example.com/settle?a=1&amp;b=%3C2%3E%7C3|Runbook> · <" + want.Job + "|Job> · <" +
		want.Alert + "|Alert>"; links.Type != "mrkdwn" || links.Text != want {
		t.Errorf("links are %+v, want %s", links, want)
	}
	event := pagerDutyOf(t, n, "")
	if event.ClientURL != want.Run || len(event.Links) != 4 || event.Links[1] != (pagerDutyLink{n.RunbookURL, "Runbook"}) {
		t.Errorf("PagerDuty gets client_url %s and links %v", event.ClientURL, event.Links)
	}
	n.Run = "" // no node has claimed the fire
	n = n.From("db2", console)
	if want := at + "apps/payments/jobs/settle/triggers/nightly/explain?at=2026-03-01T02%3A00%3A00.000Z"; n.Links.Run != want {
		t.Errorf("a fire without a run links to %s, want %s", n.Links.Run, want)
	}
}

func TestMessagesToSlackNameResponseAndLastSuccess(t *testing.T) {
	t.Parallel()
	n := failureNotification()
	n.Response, n.JobDescription, n.DeclaredAt = `{"error":"ledger is locked"}`, "Settles accounts.", n.ScheduledAt
	_, texts := slackTexts(t, n.Slack())
	for _, want := range []string{`Response: {"error":"ledger is locked"}`, "Settles accounts.",
		"Last success: never, since it was declared at 2026-03-01T02:00:00.000Z"} {
		if !slices.Contains(texts, want) {
			t.Errorf("texts are %q, want %q", texts, want)
		}
	}
	n.LastSuccess, n.DeclaredAt = n.ScheduledAt, nil
	if _, texts = slackTexts(t, n.Slack()); !slices.Contains(texts, "Last success: 2026-03-01T02:00:00.000Z") {
		t.Errorf("texts are %q, want the last success", texts)
	}
}

func TestDedupKeysFitPagerDuty(t *testing.T) {
	t.Parallel()
	const most = 255
	name := strings.Repeat("n", 63)
	for _, condition := range AlertConditions {
		n := AlertNotification{Installation: name[:36], App: name, Alert: name, Job: name, Condition: condition}
		if got := len(n.DedupKey()); got > most {
			t.Errorf("key of %s has %d characters", condition, got)
		}
	}
}

func TestDestinationOfAFollowedRunHearsOfIt(t *testing.T) {
	t.Parallel()
	n := failureNotification()
	n.Transition = AlertFollowed
	keys := map[string]bool{}
	for condition, want := range map[AlertCondition][2]string{
		"on_failure": {"Job payments/settle failed", "trigger"}, "on_success": {"Job payments/settle succeeded", "resolve"},
		"on_misfire": {"Job payments/settle missed 3 fires: status 503", "trigger"},
	} {
		n.Condition, n.Count = condition, 0
		if condition == "on_misfire" {
			n.Count = 3
		}
		event := pagerDutyOf(t, n, "")
		keys[event.DedupKey] = true
		if got := [2]string{n.Title(), event.EventAction}; got != want {
			t.Errorf("%s has title and action %q, want %q", condition, got, want)
		}
		message, _ := slackTexts(t, n.Slack())
		if green := message.Attachments[0].Color == "#2eb67d"; green != (condition == "on_success") {
			t.Errorf("%s has colour %s", condition, message.Attachments[0].Color)
		}
	}
	if len(keys) != 1 {
		t.Errorf("dedup keys are %v, want one, so that a success ends the incident of a failure", keys)
	}
}
