package console

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestFailedRunsAreGroupedByJob(t *testing.T) {
	t.Parallel()
	at := func(minute int) *time.Time { return new(time.Date(2026, 5, 1, 0, minute, 0, 0, time.UTC)) }
	got := byJob([]run.Run{
		{ID: "4", App: "shop", Job: "import", EndedAt: at(4)}, {ID: "3", App: "bank", Job: "import", EndedAt: at(3)},
		{ID: "2", App: "shop", Job: "import", EndedAt: at(2)}, {ID: "1", App: "shop", Job: "import", EndedAt: at(1)},
	})
	if len(got) != 2 || got[0].Latest.ID != "4" || got[0].Count != 3 || !got[0].Since.Equal(*at(1)) ||
		got[1].Latest.ID != "3" || got[1].Count != 1 {
		t.Errorf("got %+v, want three runs of shop/import since minute 1, then one of bank/import", got)
	}
}
