package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// T8: nodes call neither their own API nor that of another node, even if targets on the machine are allowed.
func TestJobsDoNotReachTheAPIOfAnyNode(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := pgtest.New(t)
	token := newToken(t, database)
	a := startNode(t, database, token, quick()...)
	b := startNode(t, database, token, quick()...)
	nodes := must[client.List[dispatcher.Node]](t)(a.Nodes(t.Context()))
	for _, node := range nodes.Items {
		if len(node.APIAddresses) != 1 || !strings.Contains(a.endpoint+" "+b.endpoint, node.APIAddresses[0]) {
			t.Errorf("node %s serves %v, want the address that it listens on", node.ID, node.APIAddresses)
		}
	}
	must[access.App](t)(a.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	for n, endpoint := range []string{a.endpoint, b.endpoint} {
		name := fmt.Sprint("steal", n)
		must[dispatcher.Job](t)(a.PutJob(t.Context(), webhookJob("app", name, endpoint+"/v1/nodes", nil), client.Condition{}))
		for range 4 { // so that either node makes one
			r := must[run.Run](t)(a.RunJob(t.Context(), "app", name))
			until(t, "the run to end", func() bool {
				r = must[run.Run](t)(a.Run(t.Context(), r.ID))
				return r.State == run.Failed || r.State == run.Succeeded
			})
			if r.Class != run.ClassEgressDenied {
				t.Errorf("a call of %s ended as %s, class %s, want it denied", endpoint, r.State, r.Class)
			}
		}
	}
}
