package verify

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A node settles fires because of an outage; an operator skips them because of a rollback, whatever happened meanwhile.
func TestOutageIsTheCauseOfWhatANodeDecides(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 5, 1, 10, minute, 0, 0, time.UTC) }
	until := at(20)
	all := holds{{what: "node a could not reach the database", from: at(10), until: &until, outage: true}}
	const outage = "node a could not reach the database from 2026-05-01T10:10:00.000Z to 2026-05-01T10:20:00.000Z"
	node := run.NodeID(1)
	for name, row := range map[string]struct {
		by          *run.NodeID
		first, last int
		want        string
	}{
		"a node, during the outage":             {&node, 12, 18, outage + "; late"},
		"a node, from before the outage on":     {&node, 5, 18, "late; meanwhile, " + outage},
		"a node, from the outage on":            {&node, 15, 30, outage + "; late"},
		"a node, before the outage":             {&node, 5, 5, "late"},
		"an operator, during the outage":        {nil, 12, 18, "late; meanwhile, " + outage},
		"an operator, before and in the outage": {nil, 5, 18, "late; meanwhile, " + outage},
		"an operator, a fire before the outage": {nil, 5, 5, "late"},
		"an operator, fires after the outage":   {nil, 20, 30, "late"},
	} {
		if got := all.reasonOf(&dispatcher.Misfire{Node: row.by, Reason: "late"}, at(row.first), at(row.last)); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}
