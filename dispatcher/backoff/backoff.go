// Package backoff repeats failed work, with growing pauses.
package backoff

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"
)

// Pauses are the times between tries: First, then twice as long each time, up to Most. Each is shortened by up to a
// half at random, so that nodes that failed together do not come back together.
type Pauses struct{ First, Most time.Duration }

// After returns the pause after that many failed tries, without the random part.
func (p Pauses) After(tries int) time.Duration {
	pause := p.First
	for ; tries > 1 && pause < p.Most; tries-- {
		pause *= 2
	}
	return min(pause, p.Most)
}

// Failure is a failed try.
type Failure struct {
	Err   error
	Tries int           // including this one
	Pause time.Duration // before the next
}

// Repeat calls do until it succeeds, again refuses another try, or ctx ends, and returns the last error of do. again
// may log the failure; if it is nil, another try always follows. If ctx has ended before the first try, Repeat does
// not call do.
func (p Pauses) Repeat(ctx context.Context, do func() error, again func(Failure) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := do()
		if err == nil {
			return nil
		}
		wait := Jittered(p.After(tries))
		if again != nil && !again(Failure{err, tries, wait}) {
			return err
		}
		if !Sleep(ctx, wait) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// Sleep waits, and reports whether it has waited the whole time: it returns early when ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Jittered returns a pause, shortened by up to a half. It uses the random source of ids, which simulations replace by
// a repeatable one.
func Jittered(pause time.Duration) time.Duration {
	if pause < 2 {
		return pause
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return pause - time.Duration(binary.BigEndian.Uint64(b[:])>>1)%(pause/2)
}
