package dispatch

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func testUpcoming(t *testing.T, f *wing) {
	for _, app := range []string{"soon", "later", "off"} {
		f.DeclareApp(app)
		for _, name := range []string{"a", "b"} {
			j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(5))})
			if j.App = app; app == "later" {
				j.Triggers = map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(20))}
			}
			f.Put(j, fixture.T0)
		}
	}
	f.Must(f.PutApp(t.Context(), access.App{Name: "off"}, fixture.At(fixture.T0)))
	f.PutEvery("paused", time.Minute)
	f.Must(f.PauseJob(t.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
	for _, tt := range []struct {
		what  string
		apps  []string
		until time.Time
		limit int
		want  int
	}{
		{"a moment too early", nil, fixture.Minutes(5).Add(-time.Millisecond), 10, 0},
		{"when they are due", nil, fixture.Minutes(5), 10, 2},
		{"long after, when the others are due, too", nil, fixture.Minutes(25), 10, 4},
		{"of apps that are served", []string{"soon", "off"}, fixture.Minutes(25), 10, 2},
		{"to a limit", nil, fixture.Minutes(25), 3, 3},
	} {
		if got, err := f.Upcoming(t.Context(), tt.apps, tt.until, tt.limit); err != nil || got != tt.want {
			t.Errorf("%s: counted %d, %v, want %d", tt.what, got, err, tt.want)
		}
	}
}

func testCallbacksCounted(t *testing.T, f *wing) {
	f.DeclareApp("other")
	count := func(what string, apps []string, limit, want int) {
		t.Helper()
		if got, err := f.AwaitedCallbacks(t.Context(), apps, limit); err != nil || got != want {
			t.Errorf("%s: counted %d, %v, want %d", what, got, err, want)
		}
	}
	count("none waits", nil, 10, 0)
	first, start, _ := f.accepted()
	second := f.ClaimOne("second")
	f.accept(second, start)
	f.Again(f.ClaimOne("retries"), fixture.Failure(start), fixture.FailedUntil(start.Add(time.Hour)))
	count("two wait, and one retries", nil, 10, 2)
	count("of an app that is served", []string{"shop"}, 10, 2)
	count("of another app", []string{"other"}, 10, 0)
	count("to a limit", nil, 1, 1)
	f.Must(f.complete(first.Key, 1, start.Add(time.Minute)))
	count("one has ended", nil, 10, 1)
}
