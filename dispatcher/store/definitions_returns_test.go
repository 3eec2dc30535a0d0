package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// An app that moves away and back at once still has the due fires that its deletion recorded as missed. Each then has
// one explanation: fires still due and fires of waiting runs are no misfires, those that ran elsewhere are.
func TestAppThatComesBackHasEachFireOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		elsewhere int   // fires decided there
		waits     []int // among these, fires with waiting runs when the app comes back
		want      []span
	}{
		"all are due":                 {},
		"one ran":                     {elsewhere: 1, want: []span{{1, 1, 1}}},
		"some ran":                    {elsewhere: 3, want: []span{{1, 3, 3}}},
		"all ran":                     {elsewhere: 6, want: []span{{1, 6, 6}}},
		"one waits":                   {elsewhere: 1, waits: []int{1}},
		"one waits after some ran":    {elsewhere: 3, waits: []int{3}, want: []span{{1, 2, 2}}},
		"one waits between":           {elsewhere: 4, waits: []int{2}, want: []span{{1, 1, 1}, {3, 4, 2}}},
		"all wait":                    {elsewhere: 6, waits: []int{1, 2, 3, 4, 5, 6}},
		"the first and the last wait": {elsewhere: 6, waits: []int{1, 6}, want: []span{{2, 5, 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onMoves(t, func(t *testing.T, m moving) {
				m.declare("job", nil)
				m.declare("other", nil)
				m.returns(test.elsewhere, test.waits)
				got := m.misfires("job")
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("misfires (-want +got):\n%s", diff)
				}
				m.decideAll(m.old, 9)
				page, err := verify.Ledger(t.Context(), m.old, verify.Query{App: "app", Now: m.now.Add(4 * time.Minute),
					Page: input.Page{Limit: 10}})
				must(t, err)
				if len(page.Items) != 2 {
					t.Fatalf("verify: got %+v, want two triggers", page.Items)
				}
				for _, one := range page.Items {
					if one.Unexplained != 0 || one.Unchecked != "" {
						t.Errorf("verify: %+v, want all explained", one)
					}
				}
			})
		})
	}
}

// span is a misfire, by the numbers of its fires.
type span struct{ From, To, Count int }

// fire returns the number of a fire of rate(10m). Six are due when the app leaves.
func (m moving) fire(at time.Time) int {
	return int(at.Sub(m.now.Add(-time.Hour)) / (10 * time.Minute))
}

// returns moves the app away and back. Its source deletes it, and the other installation decides some fires.
func (m moving) returns(decided int, waits []int) {
	m.t.Helper()
	ctx, back := m.t.Context(), m.at(time.Minute)
	m.move()
	for _, name := range []string{"job", "other"} {
		must(m.t, m.old.DeleteJob(ctx, "app", name, m.at(time.Second)))
	}
	must(m.t, m.old.DeleteApp(ctx, "app", m.at(2*time.Second)))
	m.decideAll(m.new, decided)
	away := moving{t: m.t, old: m.new, now: m.now.Add(2 * time.Minute)}
	away.disable()
	for more := true; more; {
		_, left, err := m.new.FollowSwitches(ctx, 100)
		must(m.t, err)
		more = left
	}
	export, err := m.new.ExportApp(ctx, "app")
	must(m.t, err)
	for _, n := range waits {
		export.Waiting = append(export.Waiting, access.ExportedRun{Job: "job", Trigger: "t", Kind: run.KindSchedule, State: run.Queued,
			ScheduledAt: m.now.Add(-time.Hour).Add(time.Duration(n) * 10 * time.Minute)})
	}
	export.App.Enabled = true
	back.Now = m.now.Add(3 * time.Minute)
	_, err = m.old.ImportApp(ctx, export, back)
	must(m.t, err)
}

// decideAll runs the fires of both jobs up to a number.
func (m moving) decideAll(s *store.Store, upTo int) {
	m.t.Helper()
	ctx, token := m.t.Context(), run.Token(0)
	jobs := map[int64]int64{}
	for _, name := range []string{"job", "other"} {
		jobs[run.TriggerID("app", name, "t")] = run.JobID("app", name)
	}
	must(m.t, s.Register(ctx, dispatcher.Node{ID: 7}, m.now))
	for {
		due, err := s.Due(ctx, dispatcher.DueQuery{Until: m.now, Now: m.now.Add(-time.Hour), Limit: 10})
		must(m.t, err)
		done := true
		for _, d := range due {
			if m.fire(d.NextFireTime) > upTo {
				continue
			}
			done = false
			token++
			held, err := s.Claim(ctx, dispatcher.ClaimBatch{Node: 7, Token: token, Now: m.now, Advances: []dispatcher.Advance{{
				TriggerID: d.ID, JobID: jobs[d.ID], Revision: d.Revision, CalendarRevision: d.CalendarRevision,
				Prev: d.PrevFireTime, Next: d.NextFireTime, Then: d.NextFireTime.Add(10 * time.Minute)}}})
			must(m.t, err)
			if len(held) != 1 {
				m.t.Fatalf("claimed %v, want the fire of %s", held, d.NextFireTime)
			}
			must(m.t, s.Record(ctx, []dispatcher.Record{{Key: held[0].Key, JobID: held[0].JobID, Revision: held[0].Revision, Node: 7,
				Token: token, Attempt: 1, ClaimedAt: m.now,
				Outcome: run.Outcome{State: run.Succeeded, StartedAt: m.now, EndedAt: m.now}}}))
		}
		if done {
			return
		}
	}
}

// misfires returns the misfires of a job in the first installation, in order.
func (m moving) misfires(job string) (all []span) {
	m.t.Helper()
	list, err := m.old.Misfires(m.t.Context(), dispatcher.RunQuery{App: "app", Job: job, Page: input.Page{Limit: 10}})
	must(m.t, err)
	for _, one := range list {
		all = append([]span{{m.fire(one.From), m.fire(one.To), one.Count}}, all...)
	}
	return all
}
