package gate

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
)

// busy works for some time on each of some requests of an app, one after the other, and returns how long it had to wait.
func busy(t *testing.T, w *work, app string, requests int, each time.Duration) (waited time.Duration) {
	t.Helper()
	for range requests {
		asked := clock()
		turn, wait := w.begin(t.Context(), app)
		if turn == nil {
			t.Fatalf("a request of %s is to wait %s more", app, wait)
		}
		waited += clock().Sub(asked)
		time.Sleep(each)
		turn.end()
	}
	return waited
}

func TestAppThatKeepsTheNodeBusyIsSlowedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		w.turns = 1
		if waited := busy(t, w, "hostile", 100, 50*time.Millisecond); waited > time.Second {
			t.Errorf("the first %s of work had to wait %s", workSaved, waited)
		}
		begun := clock()
		busy(t, w, "hostile", 300, 50*time.Millisecond)
		if share := 15 / clock().Sub(begun).Seconds(); share < workShare*0.9 || share > workShare*1.15 {
			t.Errorf("in the long run, the app kept the node busy for %.2f of the time, want %.2f", share, workShare)
		}
		if waited := busy(t, w, "other", 50, 50*time.Millisecond); waited != 0 {
			t.Errorf("another app had to wait %s", waited)
		}
	})
}

func TestRequestsOfAnAppTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		w.turns = 2
		first, _ := w.begin(t.Context(), "a")
		second, _ := w.begin(t.Context(), "a")
		if third, wait := w.begin(t.Context(), "a"); third != nil || wait <= 0 {
			t.Errorf("a third request of the app began next to two others; wait %s", wait)
		}
		first.end()
		first.end() // a second call changes nothing
		third, _ := w.begin(t.Context(), "a")
		if third == nil {
			t.Fatal("a request does not begin after another one ended")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if fourth, _ := w.begin(gone, "a"); fourth != nil {
			t.Error("a request whose client is gone began")
		}
		second.end()
		third.end()
		if taken := len(w.of("a").turns); taken != 0 {
			t.Errorf("%d turns are taken after all requests", taken)
		}
	})
}

// A request waits for its turn, or gets the time after which to try again, and does not pay for it.
func TestAppThatUsedTooMuchTimeGetsAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		w.turns = 1
		busy(t, w, "a", 1, 20*time.Second)
		turn, wait := w.begin(t.Context(), "a")
		// It had 5 s and earned 5 s meanwhile, so it has to earn 10 s, in 40 s.
		if want := 40*time.Second - workPatience; turn != nil || wait != want {
			t.Fatalf("the request is to wait %s more, want %s", wait, want)
		}
		time.Sleep(wait)
		if waited := busy(t, w, "a", 1, 0); waited != 0 {
			t.Errorf("the request came when it was told, and waited %s", waited)
		}
	})
}

func TestWaitForOthersCostsTheAppNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		w.turns = 1
		turn, _ := w.begin(t.Context(), "a")
		time.Sleep(time.Hour)
		turn.idle = time.Hour
		turn.end()
		if waited := busy(t, w, "a", 100, workSaved/100); waited != 0 {
			t.Errorf("the app had to wait %s", waited)
		}
	})
}

func TestCallbackNeedsNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{work: newWork()}
		g.work.turns = 1
		token := access.APIToken{TokenSpec: access.TokenSpec{Apps: []string{"busy"}}}
		first := &Request{Request: httptest.NewRequest("POST", "/", nil), Token: token}
		if err := g.takeTurn(first); err != nil {
			t.Fatal(err)
		}
		defer first.turn.end()
		callback := &Request{Request: httptest.NewRequest("POST", "/", nil), Token: token, Attempt: 1}
		if err := g.takeTurn(callback); err != nil || callback.turn != nil {
			t.Errorf("a callback got turn %v, error %v, want neither", callback.turn, err)
		}
		if second, _ := g.work.begin(t.Context(), "busy"); second != nil {
			t.Error("there was no turn to wait for")
		}
	})
}
