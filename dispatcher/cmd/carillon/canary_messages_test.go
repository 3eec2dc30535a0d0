package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/servers"
)

// Nothing that the system writes contains the credentials for queues and topics, of the node or of
// a role, although AWS echoes requests.
func TestNoCredentialOfAMessageIsWrittenAnywhere(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		aws := servers.NewAWS(t)
		token := newToken(t, database)
		n := startNodeWith(t, database, token, aws.Environment(), append(quick(), "--log-level=debug")...)
		all := []string{"*"}
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{
			SQS: target.SQSBounds{Queues: all, Roles: all}, SNS: target.SNSBounds{Topics: all, Roles: all},
		}}}, client.Condition{}))
		sender := &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/sender"}
		orders, announce := messageJobs()
		orders.Target.SQS.AssumeRole, announce.Target.SNS.AssumeRole = sender, sender
		var written strings.Builder
		for _, job := range []dispatcher.Job{orders, announce} {
			job.Retry.MaxAttempts = 1
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
			for _, f := range []servers.Fault{
				{Echo: true}, {Echo: true, Status: 403, Code: "AccessDenied"}, {Echo: true, Status: 500, Code: "InternalFailure"},
			} {
				aws.Fail("SendMessage", f)
				aws.Fail("Publish", f)
				run := n.ended(t, must[run.Run](t)(n.RunJob(t.Context(), "shop", job.Name)).ID)
				text, _ := json.Marshal(run)
				shown, _, _ := n.commandWith("", "run", "show", run.ID)
				if written.WriteString(string(text) + shown); run.Attempts[0].Response == nil && run.Attempts[0].Error == "" ||
					!strings.Contains(string(text), "[redacted]") {
					t.Errorf("%s, %+v: attempt %+v, want what was repeated as redacted", job.Name, f, run.Attempts[0])
				}
			}
		}
		if aws.Calls("SendMessage") != 3 || aws.Calls("Publish") != 3 {
			t.Errorf("%d and %d requests, want one for each attempt", aws.Calls("SendMessage"), aws.Calls("Publish"))
		}
		for _, path := range []string{"/metrics", "/v1/apps/shop/jobs", "/v1/apps/shop/runs", "/v1/audit?limit=1000", "/v1/nodes"} {
			written.WriteString(n.get(t, path))
		}
		n.terminate()
		written.WriteString(n.logs.String() + dump(t, database))
		for _, secret := range []string{servers.SecretAccessKey, "session-ASIA", "key-ASIA", token} {
			if at := strings.Index(written.String(), secret); at >= 0 {
				t.Errorf("%s is written: …%s…", secret, written.String()[max(0, at-300):at+40])
			}
		}
	})
}
