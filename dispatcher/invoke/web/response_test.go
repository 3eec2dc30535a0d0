package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// costly are accepted expressions of about the largest program, with texts that keep most of it busy.
func costly() map[string]string {
	return map[string]string{
		"optional characters": "(?:a?){490}b",
		"any characters":      "(?:.?){490}b",
		"classes":             `(?:[\pL\pN]?){490}b`,
		"folded":              `(?i:(?:k?|a){240})b`,
		"boundaries":          `(?:\b?a?){240}c`,
		"window":              `.{0,480}b`,
	}
}

// T6: no outcome is delayed past its deadline by matching.
func TestMatchEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	for name, text := range costly() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newExpectations()
			ctx := &endingContext{Context: t.Context(), looks: 3}
			matched, err := e.match(ctx, "shop", text, bytes.Repeat([]byte("a"), attempt.MostBody))
			if matched || !errors.Is(err, context.DeadlineExceeded) || ctx.looks != -1 {
				t.Errorf("a match of 64 KiB: %v, %v with %d looks left, want the deadline at the one after the third", matched, err, ctx.looks)
			}
			r := &interruptible{ctx: &endingContext{Context: t.Context(), looks: 3}, rest: bytes.Repeat([]byte("a"), attempt.MostBody)}
			compiled, err := e.get(text)
			if err != nil {
				t.Fatal(err)
			}
			if compiled.MatchReader(r); attempt.MostBody-len(r.rest) > 4*checkEvery {
				t.Errorf("%d characters were matched, want no more than up to the deadline", attempt.MostBody-len(r.rest))
			}
			// The work for a character is at most the size of the program, which is bounded for accepted expressions.
			if work := checkEvery * target.MaxExpectProgram; work > 100_000 {
				t.Errorf("between two looks at the deadline are %d steps, want some milliseconds", work)
			}
			if n := e.long.Len(); n != 0 {
				t.Errorf("%d apps have a turn after all matches, want none", n)
			}
		})
	}
}

// endingContext is a context whose deadline comes after a number of checks.
type endingContext struct {
	context.Context //nolint:containedctx // it is one
	looks           int
}

func (c *endingContext) Err() error {
	if c.looks--; c.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A match that was cut short returns an error. It must not take the cut for the end of the text.
func TestMatchThatIsCutShortFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := newExpectations()
	matched, err := e.match(ctx, "shop", "a{1,400}$", bytes.Repeat([]byte("a"), 1024))
	if matched || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v, want %v", matched, err, context.Canceled)
	}
}

// Long and short matches give the same results.
func TestLongAndShortMatchesAgree(t *testing.T) {
	t.Parallel()
	e := newExpectations()
	body := []byte(strings.Repeat("x", 60_000) + "é\xff\n" + `"status": "ok"`)
	for text, want := range map[string]bool{
		`"status":\s*"(ok|done)"$`: true, `^x{3,}`: true, `é.`: true, `(?i)STATUS`: true, `^"status`: false, `(?m)^"status`: true,
		`x{5}y`: false, "status": true, "state": false, "\x00": false, `\bok\b`: true,
	} {
		if got, err := e.match(t.Context(), "shop", text, body); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	if _, err := e.match(t.Context(), "shop", "(", body); err == nil {
		t.Error("an invalid expression has no error")
	}
}

// A long match of one app makes its own attempts wait, and no others.
func TestLongMatchesOfOneAppTakeTurns(t *testing.T) {
	t.Parallel()
	e := newExpectations()
	done, _ := e.long.Take(t.Context(), limit.Place{Key: "shop", Most: 1})
	defer done()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	body := bytes.Repeat([]byte("a"), attempt.MostBody)
	if _, err := e.match(ctx, "shop", "(?:a?){5}$", body); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the same app: %v, want the deadline", err)
	}
	if got, err := e.match(t.Context(), "bank", "(?:a?){5}$", body); !got || err != nil {
		t.Errorf("another app: %v, %v, want a match", got, err)
	}
}

func TestCompiledExpressionsAreBounded(t *testing.T) {
	t.Parallel()
	e := newExpectations()
	for i := range mostExpectations + 10 {
		if _, err := e.get(fmt.Sprintf("a{%d}", i%900+1)); err != nil {
			t.Fatal(err)
		}
		if _, err := e.get(fmt.Sprint("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := e.compiled.Len(); n > mostExpectations {
		t.Errorf("%d compiled expressions are kept, want %d at most", n, mostExpectations)
	}
}

// BenchmarkMatchKiB measures the cost of a KiB of body with the costliest accepted expressions.
func BenchmarkMatchKiB(b *testing.B) {
	body := bytes.Repeat([]byte("a"), 1024)
	for name, text := range costly() {
		compiled, err := target.CompileExpectation(text)
		if err != nil {
			b.Fatal(name, err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				compiled.MatchReader(&interruptible{ctx: b.Context(), rest: body})
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/KiB")
		})
	}
}
