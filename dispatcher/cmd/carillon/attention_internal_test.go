package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	webconsole "github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Each kind of problem that the API knows has a line, and the runs of a job have one together.
func TestAttentionHasALineForEachKindOfProblem(t *testing.T) {
	t.Parallel()
	words := wordsOf(t)
	found := view.Attention{Rollback: &dispatcher.Rollback{}, Nodes: make([]view.NodeAttention, 1)}
	lists := 2
	for _, field := range reflect.ValueOf(&found).Elem().Fields() {
		if items := field; items.Kind() == reflect.Struct && items.NumField() == 2 {
			items.Field(0).Set(reflect.MakeSlice(items.Field(0).Type(), 1, 1))
			lists++
		}
	}
	if got := len(problemsOf(found, words).rows) - 1; got != lists || lists < 14 {
		t.Errorf("%d lines for %d kinds of problems", got, lists)
	}
	until := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	known := view.Attention{Alerts: view.Newest[alert.State]{Items: []alert.State{
		{Condition: target.AlertFailure, Acknowledged: &alert.AcknowledgedAlert{By: "ada", Reason: "the bank is down"}},
		{Condition: target.AlertFailure, MutedUntil: &until},
		{Condition: target.AlertFailure, MutedUntil: &dispatcher.EndOfTime},
	}}}
	for i, want := range []string{"; acknowledged by ada: the bank is down", "; muted until 2026-11-28T09:00:00.000Z", "; muted"} {
		if why, _ := problemsOf(known, words).rows[i+1][3].(string); !strings.HasSuffix(why, want) {
			t.Errorf("line %d says %q, want %q at its end", i, why, want)
		}
	}
	failed := view.Attention{}
	for _, job := range []string{"a", "b", "a", "a"} {
		failed.Failed.Items = append(failed.Failed.Items, run.Run{App: "shop", Job: job})
	}
	rows := problemsOf(failed, words).rows[1:]
	if len(rows) != 2 || rows[0][1] != "shop/a" || rows[0][3] != "runs: 3, the latest  :  " || rows[1][3] != "runs: 1, the latest  :  " {
		t.Errorf("lines of failed runs: %q", rows)
	}
	failed.Failed.More = true
	if why, _ := problemsOf(failed, words).rows[1][3].(string); !strings.HasPrefix(why, "runs: at least 3,") {
		t.Errorf("a list of failed runs with more says %q", why)
	}
}

// The line of a node has its state in words, since when that is so, and what to do.
func TestAttentionSaysOfNodesWhatToDo(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	node := dispatcher.Node{Name: "d", State: dispatcher.NodeActive}
	node.HeartbeatAt, node.CertificateEndsAt = at.Add(time.Hour), &at
	node.ClockOffset, node.Lag = input.Duration(6*time.Minute), input.Duration(2*time.Second)
	silent := dispatcher.Node{Name: "b", State: dispatcher.NodeActive, NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatAt: at}}
	silent.SilentFor = input.Duration(34 * time.Second)
	rows := problemsOf(view.Attention{Nodes: view.Unwell([]dispatcher.Node{node, silent}, at)}, wordsOf(t)).rows[1:]
	for i, want := range []string{"silent: No heartbeat for 34", "wrong clock: Its clock is 6"} {
		if why, _ := rows[i][3].(string); !strings.HasPrefix(why, want) {
			t.Errorf("line %d says %q, want %q at first", i, why, want)
		}
	}
	why, _ := rows[1][3].(string)
	for _, want := range []string{"NTP", "expired at 2026-11-28 08:00:00 Z. Replace the file", "begins fires up to 2"} {
		if !strings.Contains(why, want) {
			t.Errorf("no %q in %q", want, why)
		}
	}
	if since, _ := rows[0][2].(*time.Time); since == nil || !since.Equal(at) {
		t.Errorf("silent since %v, want the last heartbeat", since)
	}
}

func wordsOf(t *testing.T) kit.Reader {
	t.Helper()
	return kit.Reader{Texts: must[*kit.Texts](t)(webconsole.English())}
}

// Messages of the command count one thing in the singular: input.Count does. Bounds are more than one.
func TestMessagesCountOneThing(t *testing.T) {
	t.Parallel()
	counted := regexp.MustCompile(`(?:\w+ )?%d (?:[a-z]+ )?[a-z]{3,}s\b`)
	bound := regexp.MustCompile(`^(has|have|than|of|open|which|about|after|besides) `)
	for _, pattern := range []string{"*.go", "node/*.go"} {
		for _, file := range must[[]string](t)(filepath.Glob(pattern)) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, found := range counted.FindAllString(string(must[[]byte](t)(os.ReadFile(file))), -1) {
				if !bound.MatchString(found) {
					t.Errorf("%s says %q, also of one", file, found)
				}
			}
		}
	}
}
