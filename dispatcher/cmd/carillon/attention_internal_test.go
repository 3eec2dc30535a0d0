package main

import (
	"reflect"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Each kind of problem that the API knows has a line, and the runs of a job have one together.
func TestAttentionHasALineForEachKindOfProblem(t *testing.T) {
	t.Parallel()
	found := view.Attention{Rollback: &dispatcher.Rollback{}, Nodes: make([]view.NodeAttention, 1)}
	lists := 2
	for _, field := range reflect.ValueOf(&found).Elem().Fields() {
		if items := field; items.Kind() == reflect.Struct && items.NumField() == 2 {
			items.Field(0).Set(reflect.MakeSlice(items.Field(0).Type(), 1, 1))
			lists++
		}
	}
	if got := len(problemsOf(found).rows) - 1; got != lists || lists < 14 {
		t.Errorf("%d lines for %d kinds of problems", got, lists)
	}
	failed := view.Attention{}
	for _, job := range []string{"a", "b", "a", "a"} {
		failed.Failed.Items = append(failed.Failed.Items, run.Run{App: "shop", Job: job})
	}
	rows := problemsOf(failed).rows[1:]
	if len(rows) != 2 || rows[0][1] != "shop/a" || rows[0][3] != "runs: 3, the latest  :  " || rows[1][3] != "runs: 1, the latest  :  " {
		t.Errorf("lines of failed runs: %q", rows)
	}
}
