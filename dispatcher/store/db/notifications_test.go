package db

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestPayloadsKeepNotifications(t *testing.T) {
	t.Parallel()
	run := run.Key{TriggerID: math.MaxInt64, Kind: run.KindSchedule}.String()
	want := []dispatcher.Notification{
		{}, {Adopt: true}, {Nodes: true}, {JobID: math.MaxInt64}, {App: "shop.eu-1"}, {App: "shop", Group: "workers"},
		{Run: run, Token: math.MaxInt64, Attempt: 12},
	}
	texts := payloads(want)
	if len(texts) != 1 {
		t.Errorf("%d payloads, want one", len(texts))
	}
	if diff := cmp.Diff(want, notificationsIn(texts[0])); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

func TestManyNotificationsTakeSeveralPayloads(t *testing.T) {
	t.Parallel()
	r := run.Key{TriggerID: math.MaxInt64, Kind: run.KindSchedule}.String()
	var want, got []dispatcher.Notification
	for i := range 1000 {
		want = append(want, dispatcher.Notification{Run: r, Token: run.Token(i), Attempt: 1})
	}
	for _, text := range payloads(want) {
		if len(text) >= 8000 {
			t.Errorf("a payload has %d bytes; PostgreSQL takes 7,999", len(text))
		}
		got = append(got, notificationsIn(text)...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

// A newer node may send notifications that this version does not know.
func TestUnknownPayloadMeansThatAnythingMayHaveChanged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "weather fine", "job", "job x", "job 1 2", "cancelled x", "cancelled a b 1", "cancelled a 1 b", "app", "group", "group shop",
	} {
		if diff := cmp.Diff([]dispatcher.Notification{{}}, notificationsIn(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	lines := notificationsIn("weather fine\nadopt")
	if diff := cmp.Diff([]dispatcher.Notification{{}, {Adopt: true}}, lines); diff != "" {
		t.Errorf("one of two lines is unknown (-want +got):\n%s", diff)
	}
}

func TestNotificationsOfOneChangeAreCoalesced(t *testing.T) {
	t.Parallel()
	jobs := func(n int) (all []dispatcher.Notification) {
		for i := range n {
			all = append(all, dispatcher.Notification{JobID: int64(1 + i)})
		}
		return all
	}
	cancelled := dispatcher.Notification{Run: "run", Token: 5, Attempt: 1}
	for name, tt := range map[string]struct{ all, want []dispatcher.Notification }{
		"nothing": {nil, nil},
		"equal ones": {
			[]dispatcher.Notification{{JobID: 1}, {Adopt: true}, {JobID: 1}, {Adopt: true}},
			[]dispatcher.Notification{{JobID: 1}, {Adopt: true}},
		},
		"some jobs": {jobs(mostJobsNotified), jobs(mostJobsNotified)},
		"many jobs": {jobs(mostJobsNotified + 1), []dispatcher.Notification{{}}},
		"anything, and more": {
			[]dispatcher.Notification{{JobID: 1}, cancelled, {Nodes: true}, {}},
			[]dispatcher.Notification{{}, cancelled, {Nodes: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, Coalesced(tt.all)); diff != "" {
				t.Errorf("coalesced (-want +got):\n%s", diff)
			}
		})
	}
}

// A listener may have lost any notification.
func TestSlowListenerReadsEverything(t *testing.T) {
	t.Parallel()
	h := &hub{listeners: map[*listener]struct{}{}}
	heard, ctx := 0, t.Context()
	last, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		h.listen(ctx, func(n dispatcher.Notification) {
			switch heard++; {
			case heard == 1: // while it looks, more changes than are kept for it
				many := make([]dispatcher.Notification, 1000)
				for i := range many {
					many[i].JobID = int64(1 + i)
				}
				h.publish(many)
			case n == dispatcher.Notification{}:
				close(last)
			}
		})
	}()
	select {
	case <-last:
	case <-over:
		t.Error("the listener was not told that it had missed something")
	}
}
