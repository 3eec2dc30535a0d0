package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// issuer is a token endpoint in virtual time.
type issuer struct {
	issued atomic.Int32
	takes  time.Duration
	life   time.Duration
	err    error
}

func (i *issuer) fetch(ctx context.Context) (*token, error) {
	asked, n := time.Now(), i.issued.Add(1)
	select {
	case <-time.After(i.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if i.err != nil {
		return nil, i.err
	}
	return newToken(fmt.Sprint("token-", n), asked, i.life), nil
}

// want fails the test unless the next attempt gets a token, after this number of requests to the issuer.
func (i *issuer) want(t *testing.T, cache *tokens, text string, asked int32) *token {
	t.Helper()
	got, err := cache.get(t.Context(), tokenKey{app: "demo"}, i.fetch)
	synctest.Wait()
	if err != nil || got.text != text || i.issued.Load() != asked {
		t.Fatalf("token = %+v, %v after %d requests, want %s after %d", got, err, i.issued.Load(), text, asked)
	}
	return got
}

func TestThousandAttemptsShareOneTokenRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache, from := newTokens(), &issuer{takes: 3 * time.Second, life: time.Hour}
		defer cache.close()
		var attempts sync.WaitGroup
		for range 1000 {
			attempts.Go(func() {
				if got, err := cache.get(t.Context(), tokenKey{app: "demo"}, from.fetch); err != nil || got.text != "token-1" {
					t.Errorf("token = %+v, %v, want the first", got, err)
				}
			})
		}
		attempts.Wait()
		if n := from.issued.Load(); n != 1 {
			t.Errorf("%d requests for a token, want 1", n)
		}
	})
}

func TestTokenIsRefreshedInTheBackgroundAheadOfItsExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache, from := newTokens(), &issuer{takes: 5 * time.Second, life: 100 * time.Second}
		defer cache.close()
		from.want(t, cache, "token-1", 1) // 5 s old
		time.Sleep(74 * time.Second)      // 79 s old
		from.want(t, cache, "token-1", 1)
		time.Sleep(2 * time.Second) // 81 s old
		began := time.Now()
		from.want(t, cache, "token-1", 2)
		from.want(t, cache, "token-1", 2) // in flight already
		if waited := time.Since(began); waited != 0 {
			t.Errorf("attempts waited for %s, want none to wait while a token is valid", waited)
		}
		time.Sleep(6 * time.Second)
		from.want(t, cache, "token-2", 2)
	})
}

func TestShortTokensAreUsedForHalfTheirLifeBeforeARefresh(t *testing.T) {
	t.Parallel()
	for life, want := range map[time.Duration]time.Duration{
		time.Hour: 48 * time.Minute, 20 * time.Second: 10 * time.Second, 4 * time.Second: 2 * time.Second, 0: 0,
		30 * time.Second: 20 * time.Second,
	} {
		asked := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
		if got := newToken("t", asked, life); got.refreshAt.Sub(asked) != want || got.expiresAt.Sub(asked) != life {
			t.Errorf("a token that lives for %s is refreshed after %s and used for %s, want %s and %s", life,
				got.refreshAt.Sub(asked), got.expiresAt.Sub(asked), want, life)
		}
	}
}

func TestTokenStaysInUseWhileItsEndpointIsUnreachable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache, from := newTokens(), &issuer{life: 100 * time.Second}
		defer cache.close()
		from.want(t, cache, "token-1", 1)
		from.err = errors.New("unreachable")
		time.Sleep(81 * time.Second)
		from.want(t, cache, "token-1", 2)
		from.want(t, cache, "token-1", 2) // not every attempt asks again after the failure
		time.Sleep(9 * time.Second)
		from.want(t, cache, "token-1", 2) // half of the remaining time has not passed
		time.Sleep(time.Second)
		from.want(t, cache, "token-1", 3)
		time.Sleep(9 * time.Second) // expired
		if got, err := cache.get(t.Context(), tokenKey{app: "demo"}, from.fetch); !errors.Is(err, from.err) {
			t.Errorf("token = %+v, %v, want the failure of the endpoint", got, err)
		}
		from.err = nil
		time.Sleep(failureAge)
		from.want(t, cache, "token-5", 5)
	})
}

func TestThrottledEndpointIsAskedAfterItsRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := 30 * time.Second
		throttled := &TokenError{Failure: attempt.Failure{Class: run.ClassOAuth2, Err: errors.New("slow down"), RetryAfter: &wait}}
		cache, from := newTokens(), &issuer{err: throttled}
		defer cache.close()
		for _, want := range []time.Duration{30 * time.Second, 20 * time.Second, 10 * time.Second} {
			_, err := cache.get(t.Context(), tokenKey{app: "demo"}, from.fetch)
			var got *TokenError
			if !errors.As(err, &got) || *got.RetryAfter != want || from.issued.Load() != 1 {
				t.Errorf("error = %v after %d requests, want one that asks for %s after 1", err, from.issued.Load(), want)
			}
			time.Sleep(10 * time.Second)
		}
		from.err, from.life = nil, time.Hour
		from.want(t, cache, "token-2", 2)
	})
}

func TestEndpointThatAsksForHoursIsAskedAfterAMinute(t *testing.T) {
	t.Parallel()
	long, short := 24*time.Hour, time.Duration(0)
	for wait, want := range map[*time.Duration]time.Duration{&long: mostFailureAge, &short: failureAge, nil: failureAge} {
		if got := pauseAfter(&TokenError{Failure: attempt.Failure{Err: errors.New("slow down"), RetryAfter: wait}}); got != want {
			t.Errorf("pause = %s, want %s", got, want)
		}
	}
}

func TestRefusedTokenIsDroppedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := tokenKey{app: "demo"}
		cache, from := newTokens(), &issuer{life: time.Hour}
		defer cache.close()
		first := from.want(t, cache, "token-1", 1)
		for range 1000 { // attempts that were in flight together
			if !cache.refuse(key, first) {
				t.Fatal("an attempt with the refused token has no other one to wait for")
			}
		}
		second := from.want(t, cache, "token-2", 2)
		if !cache.refuse(key, first) {
			t.Error("a late refusal of the first token says that it was not replaced")
		}
		from.want(t, cache, "token-2", 2)
		if cache.refuse(key, second) {
			t.Error("the target refuses every token, and each refusal drops one")
		}
		from.want(t, cache, "token-2", 2)
		time.Sleep(refusalInterval)
		if !cache.refuse(key, second) {
			t.Error("a refusal long after the latest drops no token")
		}
		from.want(t, cache, "token-3", 3)
	})
}

func TestCancelledAttemptLeavesTheTokenRequestToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache, from := newTokens(), &issuer{takes: 5 * time.Second, life: time.Hour}
		defer cache.close()
		cut, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := cache.get(cut, tokenKey{app: "demo"}, from.fetch); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("token = %+v, %v, want the end of the attempt", got, err)
		}
		from.want(t, cache, "token-1", 1)
	})
}

func TestCloseEndsTokenRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache, from := newTokens(), &issuer{takes: time.Hour}
		began := time.Now()
		var attempt sync.WaitGroup
		attempt.Go(func() {
			if _, err := cache.get(t.Context(), tokenKey{app: "demo"}, from.fetch); !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v, want the request to be cancelled", err)
			}
		})
		synctest.Wait()
		cache.close()
		attempt.Wait()
		if _, err := cache.get(t.Context(), tokenKey{app: "demo"}, from.fetch); !errors.Is(err, errTokensClosed) || time.Since(began) != 0 {
			t.Errorf("error = %v after %s, want one at once", err, time.Since(began))
		}
	})
}

func TestPanicOfATokenRequestIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache := newTokens()
		defer cache.close()
		_, err := cache.get(t.Context(), tokenKey{app: "demo"}, func(context.Context) (*token, error) { panic("oh") })
		if err == nil || err.Error() != "panic: oh" {
			t.Errorf("error = %v, want the panic", err)
		}
	})
}

func TestNoAppDisplacesTheTokensOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache, from := newTokens(), &issuer{life: time.Hour}
		defer cache.close()
		from.want(t, cache, "token-1", 1)
		for n := range 2 * mostTokens {
			if _, err := cache.get(t.Context(), tokenKey{app: "hostile", sum: [32]byte{byte(n), byte(n >> 8)}}, from.fetch); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(cache.of); n != 1+mostTokensOfApp {
			t.Errorf("%d clients are kept, want %d", n, 1+mostTokensOfApp)
		}
		from.want(t, cache, "token-1", 1+2*mostTokens)
		for n := range 2 * mostTokens {
			if _, err := cache.get(t.Context(), tokenKey{app: fmt.Sprint("app-", n)}, from.fetch); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(cache.of); n != mostTokens {
			t.Errorf("%d clients are kept, want %d", n, mostTokens)
		}
	})
}
