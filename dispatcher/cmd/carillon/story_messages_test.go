package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/servers"
)

// A story: the steps of the page about queues and topics, in order. Its configuration is valid, each job's
// message arrives once although AWS fails in between, and a run shows the id of its message.
func TestStoryMessagesReachQueuesAndTopics(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	page, err := os.ReadFile("../../../docs/how-to/send-to-a-queue-or-topic.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(page), "```hcl\n")
	config, _, _ = strings.Cut(config, "```")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := carillon(t, nil, "lint", dir); code != 0 || out+errs != "" && strings.Contains(out, "error") {
		t.Fatalf("the configuration of the page is refused: exit %d: %s%s", code, out, errs)
	}
	const queue, topic = "arn:aws:sqs:eu-central-1:123456789012:orders.fifo", "arn:aws:sns:eu-central-1:123456789012:reports"
	if !strings.Contains(config, queue) || !strings.Contains(config, topic) {
		t.Fatal("the page has other queues and topics than the story")
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		aws := servers.NewAWS(t)
		aws.CreateQueue(queue)
		aws.CreateTopic(topic)
		n := startNodeWith(t, database, newToken(t, database), aws.Environment(), quick()...)
		shop := access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}
		must[access.App](t)(n.PutApp(t.Context(), shop, client.Condition{}))
		orders, announce := messageJobs()
		if _, err := n.PutJob(t.Context(), orders, client.Condition{}); err == nil || !strings.Contains(err.Error(), "sqs.queues") {
			t.Errorf("a queue outside the bounds: %v, want a refusal", err)
		}
		shop.Bounds = &target.Bounds{SQS: target.SQSBounds{Queues: []string{queue}}, SNS: target.SNSBounds{Topics: []string{topic}}}
		must[access.App](t)(n.PutApp(t.Context(), shop, client.Condition{Existing: true}))
		must[dispatcher.Job](t)(n.PutJob(t.Context(), orders, client.Condition{}))
		must[dispatcher.Job](t)(n.PutJob(t.Context(), announce, client.Condition{}))

		// The queue accepts the message and the response is lost; the next attempt adds no second message.
		aws.Fail("SendMessage", servers.Fault{Reset: true})
		r := must[run.Run](t)(n.RunJob(t.Context(), "shop", "close-orders"))
		until(t, "a response that is lost", func() bool { return aws.Calls("SendMessage") > 0 })
		aws.Fail("SendMessage", servers.Fault{})
		r = n.ended(t, r.ID)
		got := aws.Messages(queue)
		if r.State != run.Succeeded || len(r.Attempts) < 2 || r.Attempts[0].State != run.Lost || len(got) != 1 ||
			got[0].Body != `{"close":"expired"}` || got[0].GroupID != "shop/close-orders" || got[0].DeduplicationID != r.EventID {
			t.Errorf("run %+v sent %+v, want one message after an attempt that was lost", r, got)
		}
		if shown, _, _ := n.commandWith("", "run", "show", r.ID); !strings.Contains(shown, got[0].ID) {
			t.Errorf("the run does not show message %s:\n%s", got[0].ID, shown)
		}

		// A throttled attempt does not count, and the topic gets the rendered text.
		aws.Fail("Publish", servers.Fault{Status: 429, Code: "Throttled"})
		r = must[run.Run](t)(n.RunJob(t.Context(), "shop", "announce"))
		until(t, "a throttled request", func() bool { return aws.Calls("Publish") > 0 })
		aws.Fail("Publish", servers.Fault{})
		r = n.ended(t, r.ID)
		published := aws.Messages(topic)
		if r.State != run.Succeeded || r.Attempts[0].Class != run.ClassThrottled || len(published) != 1 ||
			published[0].Attributes["app"] != "shop" || !strings.HasPrefix(published[0].Subject, "announce of 20") {
			t.Errorf("run %+v published %+v, want one message after a throttled attempt", r, published)
		}

		// A missing queue fails the run at once, with a clear error.
		aws.Fail("SendMessage", servers.Fault{Status: 400, Code: "QueueDoesNotExist"})
		r = n.ended(t, must[run.Run](t)(n.RunJob(t.Context(), "shop", "close-orders")).ID)
		if first := r.Attempts[0]; r.State != run.Failed || len(r.Attempts) != 1 || first.Class != run.ClassConfig ||
			!strings.Contains(first.Error, "NonExistentQueue") {
			t.Errorf("run %+v, want one attempt of class config", r)
		}
	})
}

// messageJobs returns the jobs of the page.
func messageJobs() (orders, announce dispatcher.Job) {
	orders, announce = webhookJob("shop", "close-orders", "", nil), webhookJob("shop", "announce", "", nil)
	var sqs target.SQS
	sqs.SetDefaults()
	sqs.QueueARN = "arn:aws:sqs:eu-central-1:123456789012:orders.fifo"
	var sns target.SNS
	sns.SetDefaults()
	sns.TopicARN, sns.Subject = "arn:aws:sns:eu-central-1:123456789012:reports", `{{.Job}} of {{date "%F" "Europe/Berlin" .ScheduledAt}}`
	sns.Body, sns.Attributes = "The report is due.", map[string]string{"app": "{{.App}}"}
	orders.Target, orders.Payload = target.Target{SQS: &sqs}, []byte(`{"close":"expired"}`)
	announce.Target = target.Target{SNS: &sns}
	for _, job := range []*dispatcher.Job{&orders, &announce} {
		job.Retry.SetDefaults()
		job.Retry.Base, job.Retry.Cap = input.Duration(input.MinDuration), input.Duration(input.MinDuration)
		job.Retry.MaxAttempts = run.MostAttempts // until the test has ended the fault
	}
	return orders, announce
}

// ended waits for the end of a run.
func (n *process) ended(t *testing.T, id string) (r run.Run) {
	t.Helper()
	until(t, "run "+id+" to end", func() bool {
		r = must[run.Run](t)(n.Run(t.Context(), id))
		return r.State == run.Succeeded || r.State == run.Failed
	})
	return r
}
