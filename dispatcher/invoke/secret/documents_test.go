package secret

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// keeper is a manager of one secret, and a node's cache of it.
type keeper struct {
	*documents
	log   bytes.Buffer
	text  string
	err   error
	wait  time.Duration
	reads atomic.Int32
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{text: "one"}
	k.documents = newDocuments(time.Minute, 15*time.Minute, slog.New(slog.NewTextHandler(&k.log, nil)),
		func(ctx context.Context, _ documentKey, _ time.Time) (string, error) {
			k.reads.Add(1)
			select {
			case <-time.After(k.wait):
			case <-ctx.Done():
				return "", &secretmanager.Error{Kind: secretmanager.Unreachable, Manager: "Vault", Code: "no response"}
			}
			return k.text, k.err
		})
	t.Cleanup(k.close)
	return k
}

func of(app string) documentKey {
	return documentKey{app: app, SecretReference: target.SecretReference{Source: target.SecretVault, Name: "secret/data/a"}}
}

func failure(kind secretmanager.Kind) error {
	return &secretmanager.Error{Kind: kind, Manager: "Vault", Code: "as the test wants"}
}

// expect reads the secret at a time and compares text, or the kind of the error, and the number of reads so far.
func (k *keeper) expect(t *testing.T, now time.Time, want string, reads int32) {
	t.Helper()
	got, err := k.documents.text(t.Context(), of("a"), now)
	k.documents.reads.Wait() // one may go on in the background
	if (err != nil) != (want == "") || got != want || k.reads.Load() != reads {
		t.Errorf("text = %q, %v after %d reads, want %q after %d", got, err, k.reads.Load(), want, reads)
	}
}

func TestSecretsOfManagersAreReadOnceAMinute(t *testing.T) {
	t.Parallel()
	k, now := newKeeper(t), time.Now()
	k.expect(t, now, "one", 1)
	k.text = "two"
	k.expect(t, now.Add(59*time.Second), "one", 1)
	k.expect(t, now.Add(time.Minute), "two", 2)
	if got, _ := k.documents.text(t.Context(), of("b"), now); got != "two" || k.reads.Load() != 3 {
		t.Errorf("another app got %q after %d reads, want a read of its own", got, k.reads.Load())
	}
}

// While a manager is unreachable or throttles, the last value is used for the stated time, and the manager is queried
// every five seconds at most. A denied or deleted secret is not used any more, even if the manager fails later.
func TestTheLastValueIsUsedWhileItsManagerIsUnreachable(t *testing.T) {
	t.Parallel()
	for _, kind := range []secretmanager.Kind{secretmanager.Unreachable, secretmanager.Throttled} {
		k, now := newKeeper(t), time.Now()
		k.expect(t, now, "one", 1)
		k.err = failure(kind)
		k.expect(t, now.Add(61*time.Second), "one", 2)
		k.expect(t, now.Add(65*time.Second), "one", 2)
		k.expect(t, now.Add(66*time.Second), "one", 3)
		k.expect(t, now.Add(15*time.Minute-time.Second), "one", 4)
		k.expect(t, now.Add(15*time.Minute), "", 4)
		k.expect(t, now.Add(16*time.Minute), "", 5)
		k.err, k.text = nil, "two"
		k.expect(t, now.Add(17*time.Minute), "two", 6)
		if log := k.log.String(); strings.Count(log, "secret cannot be read") != 1 || strings.Count(log, "can be read again") != 1 ||
			!strings.Contains(log, "last_value_used=true") || strings.Contains(log, "one") && strings.Contains(log, "two") {
			t.Errorf("log = %s, want that it begins and that it ends, without the value", log)
		}
	}
	for _, kind := range []secretmanager.Kind{secretmanager.Denied, secretmanager.Missing, secretmanager.Unusable} {
		k, now := newKeeper(t), time.Now()
		k.expect(t, now, "one", 1)
		k.err = failure(kind)
		k.expect(t, now.Add(time.Minute), "", 2)
		k.err = failure(secretmanager.Unreachable)
		k.expect(t, now.Add(64*time.Second), "", 2)
		k.expect(t, now.Add(65*time.Second), "", 3)
	}
}

// Attempts that need a secret at once wait for one read. If one runs out of time, the read goes on for the others.
func TestOneReadServesAllWaitingAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.wait = 3 * time.Second
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := k.documents.text(short, of("a"), began); err == nil || time.Since(began) != time.Second {
				t.Errorf("error = %v after %s, want one after the second of the attempt", err, time.Since(began))
			}
		})
		for range 20 {
			wg.Go(func() {
				if got, err := k.documents.text(t.Context(), of("a"), began); got != "one" || err != nil {
					t.Errorf("text = %q, %v", got, err)
				}
			})
		}
		wg.Wait()
		if k.reads.Load() != 1 || time.Since(began) != 3*time.Second {
			t.Errorf("%d reads in %s, want one of 3s", k.reads.Load(), time.Since(began))
		}
		k.wait = time.Hour // a slow manager counts as unreachable
		got, err := k.documents.text(t.Context(), of("a"), began.Add(time.Minute))
		if got != "one" || err != nil || time.Since(began) != 8*time.Second {
			t.Errorf("text = %q, %v after %s, want the last value after 5 more seconds", got, err, time.Since(began))
		}
		// From now on no attempt waits for it.
		for after := range 5 {
			got, err := k.documents.text(t.Context(), of("a"), began.Add(66*time.Second+time.Duration(after)))
			if got != "one" || err != nil || time.Since(began) != 8*time.Second {
				t.Errorf("text = %q, %v after %s, want the last value at once", got, err, time.Since(began))
			}
		}
		if synctest.Wait(); k.reads.Load() != 3 {
			t.Errorf("%d reads, want a third next to the attempts", k.reads.Load())
		}
		go func() { _, _ = k.documents.text(t.Context(), of("b"), began) }()
		synctest.Wait()
		k.close() // ends the read in progress
		if time.Since(began) != 8*time.Second {
			t.Errorf("close took until %s", time.Since(began))
		}
	})
}

// A secret that a target refuses is read again, once until it is due, however many attempts are refused.
func TestRefusedSecretsAreReadAgainOnce(t *testing.T) {
	t.Parallel()
	k, now := newKeeper(t), time.Now()
	again := func(after time.Duration, want string, reads int32) {
		t.Helper()
		if got, err := k.again(t.Context(), of("a"), now.Add(after)); got != want || err != nil || k.reads.Load() != reads {
			t.Errorf("again after %s = %q, %v after %d reads, want %q after %d", after, got, err, k.reads.Load(), want, reads)
		}
	}
	k.expect(t, now, "one", 1)
	again(time.Second, "one", 2)
	again(2*time.Second, "one", 2)
	k.text = "two"
	again(3*time.Second, "one", 2)
	k.expect(t, now.Add(62*time.Second), "two", 3)
	k.text = "three"
	again(63*time.Second, "three", 4)
	k.expect(t, now.Add(64*time.Second), "three", 4)
	k.err = errors.New("wrong")
	if _, err := k.documents.text(t.Context(), of("a"), now.Add(time.Hour)); err == nil {
		t.Error("an unknown error left the value in use")
	}
}

func TestKeptSecretsAreBounded(t *testing.T) {
	t.Parallel()
	k, now := newKeeper(t), time.Now()
	k.text = strings.Repeat("x", 64<<10)
	for n := range 2 * mostDocumentBytes / len(k.text) {
		key := of("a")
		key.Name += strings.Repeat("x", n%7) + string(rune('a'+n))
		if _, err := k.documents.text(t.Context(), key, now.Add(time.Duration(n)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	sum := 0
	for _, e := range k.of {
		sum += len(e.text)
	}
	if sum != k.bytes || sum > mostDocumentBytes+len(k.text) || len(k.of) < 100 {
		t.Errorf("%d bytes in %d secrets are kept, and %d counted; want at most %d", sum, len(k.of), k.bytes, mostDocumentBytes)
	}
}
