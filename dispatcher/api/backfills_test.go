package api_test

import (
	"net/http"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestBackfillIsCountedBegunAndChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	count := into[repeat.BackfillCount](w.must(http.StatusOK, "POST", oneJob+"/backfill", dryBackfill))
	if count.Total != 3 || input.FormatInstant(*count.First) != "2026-01-01T02:00:00.000Z" ||
		input.FormatInstant(*count.Last) != "2026-01-03T02:00:00.000Z" {
		t.Errorf("counted %+v, want the three nights", count)
	}
	if all := w.must(http.StatusOK, "GET", oneApp+"/backfills", "").Body.String(); all != `{"items":[]}`+"\n" {
		t.Errorf("after a dry run there are backfills: %s", all)
	}
	got := w.must(http.StatusAccepted, "POST", oneJob+"/backfill",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-03T23:59:59Z","trigger":"nightly","payload":{"again":true},"reason":"a gap"}`)
	begun := into[repeat.Backfill](got)
	path := oneApp + "/backfills/" + begun.ID
	if got.Header().Get("Location") != path || begun.Total != 3 || begun.State != repeat.BackfillRunning || begun.CreatedBy == "" ||
		begun.Concurrency != 1 || begun.Order != repeat.BackfillOldestFirst || begun.Existing != repeat.ExistingSkip {
		t.Errorf("begun %+v at %s", begun, got.Header().Get("Location"))
	}
	w.do("POST", oneJob+"/backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-03T23:59:59Z"}`).refused(409, " state_conflict")
	for _, step := range []struct {
		verb string
		want repeat.BackfillState
	}{
		{"pause", repeat.BackfillPaused}, {"pause", repeat.BackfillPaused}, {"resume", repeat.BackfillRunning},
		{"cancel", repeat.BackfillCancelling},
	} {
		if b := into[repeat.Backfill](w.must(http.StatusOK, "POST", path+"/"+step.verb, "")); b.State != step.want {
			t.Errorf("after %s it is %s, want %s", step.verb, b.State, step.want)
		}
	}
	w.do("POST", path+"/resume", "").refused(409, " state_conflict")
	w.do("GET", oneApp+"/backfills/none", "").refused(404, " not_found")
}

func TestBadBackfillsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for body, want := range map[string]string{
		`{"to":"2026-01-02T00:00:00Z"}`:                                                  "/from required",
		`{"from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}`:                    "/to window_order",
		`{"from":"2026-01-02T00:00:00Z","to":"2199-01-01T00:00:00Z"}`:                    "/to time_range",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","trigger":"none"}`:   "/trigger enum",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","concurrency":1001}`: "/concurrency count_range",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","order":"any"}`:      "/order enum",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","existing":"any"}`:   "/existing enum",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","pace":"25h"}`:       "/pace duration_max",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","payload":"\u0000"}`: "/payload string_nul",
	} {
		w.do("POST", oneJob+"/backfill", body).refused(422, want)
	}
}

func TestRunTakesAnotherPayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	r := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", `{"payload":{"only":"eu"}}`))
	if string(r.Payload) != `{"only":"eu"}` {
		t.Errorf("the run shows payload %s", r.Payload)
	}
	read := into[run.Run](w.must(http.StatusOK, "GET", "/v1/runs/"+r.ID, ""))
	if string(read.Payload) != `{"only":"eu"}` {
		t.Errorf("read again, the run shows payload %s", read.Payload)
	}
	w.must(http.StatusCreated, "PUT", oneApp+"/jobs/get", `{"target":{"webhook":{"url":"https://example.com/hook","method":"GET"}}}`)
	w.do("POST", oneApp+"/jobs/get/run", `{"payload":1}`).refused(422, "/payload body_method")
}
