package console

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestAlertsWithTheSameWordsAreGrouped(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	state := func(job, words string, minute int) alert.State {
		return alert.State{App: "bank", Alert: "on-call", Job: job, Error: words, Since: since.Add(time.Duration(minute) * time.Minute)}
	}
	got := alike([]alert.State{state("a", "503", 2), state("b", "503", 1), state("c", "503", 3), state("d", "refused", 0),
		state("e", "refused", 0)})
	if len(got) != 3 || len(got[0].Jobs) != 3 || !got[0].Since.Equal(since.Add(time.Minute)) || len(got[1].Jobs) != 1 ||
		got[2].Job != "e" {
		t.Errorf("got %+v, want three jobs with 503 since minute 1, then d, then e", got)
	}
}

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
