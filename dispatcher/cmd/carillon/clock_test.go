package main

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// clockOf gives a PostgreSQL database an adjustable clock, and returns the function that sets it
// ahead. The search path of the database finds a function before that of PostgreSQL, so the nodes
// use the same statements as in production.
func clockOf(t *testing.T, database string) func(ahead time.Duration) {
	t.Helper()
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), database))
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	const install = `CREATE TABLE public.clock_ahead (by INTERVAL NOT NULL);
		INSERT INTO public.clock_ahead (by) VALUES ('0');
		CREATE FUNCTION public.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE SQL VOLATILE AS
			'SELECT pg_catalog.clock_timestamp() + by FROM public.clock_ahead';
		DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET search_path = public, pg_catalog'; END $$`
	if _, err := conn.Exec(t.Context(), install); err != nil {
		t.Fatal(err)
	}
	return func(ahead time.Duration) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), `UPDATE public.clock_ahead SET by = $1`, ahead); err != nil {
			t.Fatal(err)
		}
	}
}

// jumping is a fleet of two nodes over a database with a clock that jumps.
type jumping struct {
	*process
	t        *testing.T
	receiver *receiver
	release  chan struct{}
	shift    func(time.Duration)
	settings []setting
}

// setting is an offset of the clock. It was set at some time between two instants.
type setting struct {
	from, by time.Time
	ahead    time.Duration
}

// set changes the offset of the clock.
func (j *jumping) set(ahead time.Duration) {
	j.t.Helper()
	from := time.Now()
	j.shift(ahead)
	j.settings = append(j.settings, setting{from, time.Now(), ahead})
}

// early reports whether a request came before its instant by the database's clock. A fire that was
// claimed a little ahead, before the clock was set back, may still come at any time.
func (j *jumping) early(a arrival) bool {
	for i, s := range j.settings {
		latest := a.at // the latest time at which this setting may have released the request
		if i+1 < len(j.settings) {
			if end := j.settings[i+1].by.Add(500 * time.Millisecond); latest.After(end) {
				latest = end
			}
		}
		if !a.at.Before(s.from) && !a.scheduled.After(latest.Add(s.ahead)) {
			return false
		}
	}
	return true
}

// newJumping starts the fleet with a job that fires each second, one that fires each ten minutes
// and catches up with all missed fires, and ten requests in flight.
func newJumping(t *testing.T) *jumping {
	t.Helper()
	j := &jumping{t: t, release: make(chan struct{}), settings: []setting{{from: time.Now()}}}
	database := pgtest.New(t)
	j.shift = clockOf(t, database)
	j.receiver = newReceiver(t, func(w http.ResponseWriter, a arrival) {
		if a.path == "/held" {
			<-j.release
		}
		w.WriteHeader(http.StatusNoContent)
	})
	token := newToken(t, database)
	// Heartbeats are rare and the handler is busy: when the clock jumps, the last heartbeat of one node is old,
	// and that of the other is not. A live node on a busy machine may send no heartbeat for many seconds.
	settings := []string{"--handler-interval=100ms", "--heartbeat=1300ms", "--dead-after=60s", "--poll-window=200ms", "--share-grace=100ms"}
	j.process = startNode(t, database, token, settings...)
	startNode(t, database, token, settings...)
	must[access.App](t)(j.PutApp(t.Context(), access.App{Name: "jump", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	for name, expression := range map[string]string{"often": "rate(1s)", "rarely": "rate(10m)", "held": "at(2099-01-01T00:00:00Z)"} {
		job := webhookJob("jump", name, j.receiver.URL+"/"+name, map[string]string{"t": expression})
		if name == "rarely" {
			trigger := job.Triggers["t"]
			trigger.MisfirePolicy = dispatcher.FireAll
			job.Triggers["t"] = trigger
		}
		must[dispatcher.Job](t)(j.PutJob(t.Context(), job, client.Condition{}))
	}
	for range held {
		must[run.Run](t)(j.RunJob(t.Context(), "jump", "held"))
	}
	j.until("the fleet to work", func(all []arrival) bool { return count(all, "/held") == held && count(all, "/often") > 2 })
	return j
}

// held is the number of requests in flight when the clock jumps.
const held = 10

func count(all []arrival, path string) (n int) {
	for _, a := range all {
		if a.path == path {
			n++
		}
	}
	return n
}

func (j *jumping) until(what string, enough func([]arrival) bool) {
	j.t.Helper()
	j.receiver.await(j.t, what, enough)
}

// next returns the next scheduled time of the job that fires each second.
func (j *jumping) next() time.Time {
	j.t.Helper()
	next := must[dispatcher.Job](j.t)(j.Job(j.t.Context(), "jump", "often")).Triggers["t"].NextFireTime
	if next == nil {
		j.t.Fatal("the trigger has no next fire")
	}
	return *next
}

// check requires that no request came twice or early, that no node was marked dead, and that every
// scheduled time has a run or a decision.
func (j *jumping) check() {
	j.t.Helper()
	close(j.release)
	until(j.t, "the requests in flight to be recorded", func() bool {
		for _, r := range j.allRuns("jump") {
			if r.Job == "held" && r.State != run.Succeeded {
				return false
			}
		}
		return true
	})
	seen := map[string]int{}
	for _, a := range j.receiver.all() {
		if seen[a.event]++; seen[a.event] > 1 {
			j.t.Errorf("%s: instant %s came %d times", a.path, a.scheduled, seen[a.event])
		}
		if j.early(a) {
			j.t.Errorf("%s: instant %s came early, at %s; the clock was %+v", a.path, a.scheduled, a.at, j.settings)
		}
	}
	nodes := must[client.List[dispatcher.Node]](j.t)(j.Nodes(j.t.Context()))
	for _, n := range nodes.Items {
		if n.State != dispatcher.NodeActive || len(nodes.Items) != 2 {
			j.t.Errorf("node %s is %s, of %d nodes; want both active, and registered once", n.ID, n.State, len(nodes.Items))
		}
	}
	if out, errs, code := carillon(j.t, []string{
		"CARILLON_ENDPOINT=" + j.endpoint, "CARILLON_TOKEN=" + j.token}, "verify", "jump"); code != 0 {
		j.t.Errorf("audit: exit %d: %s%s", code, out, errs)
	}
}

// If the database's clock jumps ahead by an hour, the fires of that hour are missed, and the misfire policies
// handle them. No node is marked dead, because the heartbeats of all nodes look equally old.
func TestDatabaseClockJumpsAhead(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	j := newJumping(t)
	j.set(time.Hour)
	after := time.Now().Add(time.Hour)
	j.until("fires after the leap", func(all []arrival) bool {
		return len(all) > 0 && all[len(all)-1].scheduled.After(after.Add(3*time.Second)) && count(all, "/rarely") >= 6
	})
	j.check()
	var missed int64
	for _, m := range must[client.List[dispatcher.Misfire]](t)(j.Misfires(t.Context(), dispatcher.RunQuery{App: "jump", Job: "often"})).Items {
		missed += int64(m.Count)
	}
	if missed < 3590 { // a busy machine may miss late fires, too
		t.Errorf("%d instants of the hour are in misfires, want about 3600", missed)
	}
}

// If the clock is set back, no trigger fires again or moves back. Triggers continue when the clock
// reaches the old time. Work without a schedule continues at once.
func TestDatabaseClockIsSetBack(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	j := newJumping(t)
	next := j.next()
	j.set(-5 * time.Second)
	until(t, "the clock to come as far again", func() bool {
		now := j.next()
		if now.Before(next) {
			t.Fatalf("the trigger went back from %s to %s", next, now)
		}
		return now.After(next.Add(2 * time.Second))
	})
	before := j.lastHeartbeat()
	j.set(-time.Hour)
	until(t, "the nodes to have noticed", func() bool { return j.lastHeartbeat().Before(before.Add(-time.Minute)) })
	next = j.next()
	j.awaitHeartbeats(3 * time.Second)
	if now := j.next(); !now.Equal(next) {
		t.Errorf("the next fire is at %s, want it still at %s: the hour has been", now, next)
	}
	run := must[run.Run](t)(j.RunJob(t.Context(), "jump", "held"))
	j.until("a run that somebody asks for", func(all []arrival) bool {
		return slices.ContainsFunc(all, func(a arrival) bool { return a.run == run.ID })
	})
	for _, a := range j.receiver.all() {
		if a.path == "/often" && !a.scheduled.Before(next) {
			t.Errorf("instant %s came in an hour that has been, before the next fire, %s", a.scheduled, next)
		}
	}
	j.check()
}
