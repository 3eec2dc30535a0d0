package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
)

func TestOutageOfTheDatabaseIsLoggedOnceAtEachEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, log := &slowHeartbeat{}, &bytes.Buffer{}
		e := New(s, nil, Options{Logger: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry()})
		e.fleet.Joined(1, dispatcher.NodeActive, time.Now())
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); e.heartbeatLoop(ctx) }()
		time.Sleep(time.Minute)
		s.failing.Store(true)
		time.Sleep(6 * time.Second)
		for range 60 { // other loops fail as well
			e.log.Failed(ctx, "listen", errors.New("connection refused"))
			time.Sleep(time.Second)
		}
		s.failing.Store(false)
		time.Sleep(6 * time.Second)
		e.log.Failed(ctx, "listen", errors.New("another reason"))
		end()
		<-over
		synctest.Wait()
		var messages []string
		for line := range strings.Lines(log.String()) {
			_, message, _ := strings.Cut(line, "msg=")
			messages = append(messages, strings.TrimSpace(message))
		}
		if len(messages) != 3 || !strings.HasPrefix(messages[0], `"database lost"`) || !strings.Contains(messages[0], "connection refused") ||
			!strings.HasPrefix(messages[1], `"database reached again"`) || !strings.Contains(messages[1], "after=1m") ||
			!strings.Contains(messages[2], "another reason") {
			t.Errorf("lines:\n%s\nwant that it was lost, why, that it was reached again, after how long, and what failed later",
				strings.Join(messages, "\n"))
		}
	})
}

func TestRepeatedStepIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, tries := &bytes.Buffer{}, 0
		loop.UntilDone(t.Context(), slog.New(slog.NewTextHandler(log, nil)), "record", 3, func() error {
			if tries++; tries < 20 {
				return errors.New("connection refused")
			}
			return nil
		})
		if got := strings.Count(log.String(), "step failed"); got != 1 {
			t.Errorf("%d lines for 19 failures, want one:\n%s", got, log)
		}
	})
}
