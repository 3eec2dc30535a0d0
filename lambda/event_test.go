package lambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/lambda"
)

func event(id string, attempt int, fence int64) lambda.Event {
	return lambda.Event{Carillon: lambda.Fire{
		EventID: id, App: "a", Job: "j", Trigger: "t", Run: "r", Attempt: attempt, Fence: fence,
		ScheduledAt: time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC),
	}}
}

func TestWorkIsDoneUntilItSucceedsOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	handler := lambda.Once(&lambda.Memory{}, func(context.Context, lambda.Event) (any, error) {
		if calls++; calls == 1 {
			return nil, errors.New("first")
		}
		return map[string]int{"call": calls}, nil
	})
	var got []string
	for attempt := 1; attempt <= 3; attempt++ {
		result, err := handler(t.Context(), event("e", attempt, int64(attempt)))
		text, _ := json.Marshal(result)
		got = append(got, fmt.Sprint(string(text), err))
	}
	if want := "[nullfirst {\"call\":2}<nil> {\"call\":2}<nil>]"; fmt.Sprint(got) != want || calls != 2 {
		t.Errorf("got %v after %d calls, want %s after 2", got, calls, want)
	}
}

func TestStaleEventsAreRefused(t *testing.T) {
	t.Parallel()
	handler := lambda.Fenced(&lambda.Memory{}, func(context.Context, lambda.Event) (any, error) { return "done", nil })
	for i, tt := range []struct {
		fence int64
		stale bool
	}{{1001, false}, {1002, false}, {1002, false}, {1001, true}, {2001, false}, {1003, true}} {
		if _, err := handler(t.Context(), event("e", 1, tt.fence)); errors.Is(err, lambda.ErrStale) != tt.stale {
			t.Errorf("call %d with fence %d: %v, want stale %v", i, tt.fence, err, tt.stale)
		}
	}
	// Lambda reports the name of the type, which must not depend on what wraps the handler.
	_, err := lambda.Fenced(&lambda.Memory{}, handler)(t.Context(), event("e", 1, 1))
	if kind := reflect.TypeOf(err); kind != reflect.TypeFor[*lambda.Superseded]() {
		t.Errorf("the error is of type %v, want one that is named Superseded", kind)
	}
	other := event("e", 1, 1)
	other.Carillon.Trigger = "other"
	if _, err := handler(t.Context(), other); err != nil {
		t.Errorf("another trigger: %v", err)
	}
}

// The second attempt of one shard does not make the first attempt of another stale.
func TestShardsAreFencedApart(t *testing.T) {
	t.Parallel()
	handler := lambda.Fenced(&lambda.Memory{}, func(context.Context, lambda.Event) (any, error) { return "done", nil })
	for i, tt := range []struct {
		index int
		fence int64
		stale bool
	}{{0, 1002, false}, {1, 1001, false}, {0, 1001, true}, {1, 2001, false}, {0, 1003, false}} {
		e := event("e", 1, tt.fence)
		e.Carillon.ShardIndex, e.Carillon.ShardTotal = tt.index, 2
		if _, err := handler(t.Context(), e); errors.Is(err, lambda.ErrStale) != tt.stale {
			t.Errorf("call %d of shard %d with fence %d: %v, want stale %v", i, tt.index, tt.fence, err, tt.stale)
		}
	}
}

func TestOtherInputIsRefused(t *testing.T) {
	t.Parallel()
	work := func(context.Context, lambda.Event) (any, error) { t.Error("the work was done"); return nil, nil }
	for _, handler := range []lambda.Handler{lambda.Once(&lambda.Memory{}, work), lambda.Fenced(&lambda.Memory{}, work)} {
		if _, err := handler(t.Context(), lambda.Event{Payload: json.RawMessage(`{}`)}); !errors.Is(err, lambda.ErrNoEvent) {
			t.Errorf("error = %v, want ErrNoEvent", err)
		}
	}
}

func TestMemoryDropsTheOldestResult(t *testing.T) {
	t.Parallel()
	m := lambda.Memory{Most: 2}
	for _, id := range []string{"a", "b", "b", "c"} {
		if err := m.Keep(t.Context(), id, json.RawMessage(`1`)); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]bool{"a": false, "b": true, "c": true} {
		if kept, _ := m.Result(t.Context(), id); (kept != nil) != want {
			t.Errorf("%s is kept: %v, want %v", id, kept != nil, want)
		}
	}
}
