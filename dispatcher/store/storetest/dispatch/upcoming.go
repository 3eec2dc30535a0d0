package storetest

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
)

func testUpcoming(t *testing.T, f *fixture) {
	for _, app := range []string{"soon", "later", "off"} {
		f.putApp(app)
		for _, name := range []string{"a", "b"} {
			j := job(name, map[string]dispatcher.Trigger{"tick": every(time.Minute, minutes(5))})
			if j.App = app; app == "later" {
				j.Triggers = map[string]dispatcher.Trigger{"tick": every(time.Minute, minutes(20))}
			}
			f.put(j, t0)
		}
	}
	f.must(f.PutApp(t.Context(), access.App{Name: "off"}, at(t0)))
	f.putEvery("paused", time.Minute)
	f.must(f.PauseJob(t.Context(), "shop", "paused", "", true, at(t0)))
	for _, tt := range []struct {
		what  string
		apps  []string
		until time.Time
		limit int
		want  int
	}{
		{"a moment too early", nil, minutes(5).Add(-time.Millisecond), 10, 0},
		{"when they are due", nil, minutes(5), 10, 2},
		{"long after, when the others are due, too", nil, minutes(25), 10, 4},
		{"of apps that are served", []string{"soon", "off"}, minutes(25), 10, 2},
		{"to a limit", nil, minutes(25), 3, 3},
	} {
		if got, err := f.Upcoming(t.Context(), tt.apps, tt.until, tt.limit); err != nil || got != tt.want {
			t.Errorf("%s: counted %d, %v, want %d", tt.what, got, err, tt.want)
		}
	}
}

func testCallbacksCounted(t *testing.T, f *fixture) {
	f.putApp("other")
	count := func(what string, apps []string, limit, want int) {
		t.Helper()
		if got, err := f.AwaitedCallbacks(t.Context(), apps, limit); err != nil || got != want {
			t.Errorf("%s: counted %d, %v, want %d", what, got, err, want)
		}
	}
	count("none waits", nil, 10, 0)
	first, start, _ := f.accepted()
	second := f.claimOne("second")
	f.accept(second, start)
	f.again(f.claimOne("retries"), failure(start), failedUntil(start.Add(time.Hour)))
	count("two wait, and one retries", nil, 10, 2)
	count("of an app that is served", []string{"shop"}, 10, 2)
	count("of another app", []string{"other"}, 10, 0)
	count("to a limit", nil, 1, 1)
	f.must(f.complete(first.Key, 1, start.Add(time.Minute)))
	count("one has ended", nil, 10, 1)
}
