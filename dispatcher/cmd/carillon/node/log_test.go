package node

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedBuffer is a buffer that one goroutine writes and another reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// stuck is a log that blocks every write until it is released.
type stuck struct {
	lockedBuffer
	free chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.free
	return s.lockedBuffer.Write(p)
}

func TestUnreadLogDelaysNoCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, sink := &stuck{free: make(chan struct{})}, newLogSink()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go sink.run(ctx, out, NewLogger(out, "info", "text"))
		const beyond = 7
		for i := range logBuffer + 1 + beyond { // one is being written
			fmt.Fprintln(sink, "line", i)
			synctest.Wait()
		}
		begun := time.Now()
		sink.flush(time.Second)
		if waited := time.Since(begun); waited != time.Second {
			t.Errorf("the end of the process waits %s for a log that is stuck, want 1s", waited)
		}
		close(out.free)
		sink.flush(time.Second)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if want := fmt.Sprint("count=", beyond); len(lines) != logBuffer+2 || !strings.HasSuffix(lines[1], want) {
			t.Errorf("%d lines, the second %q; want %d, and there %s", len(lines), lines[1], logBuffer+2, want)
		}
	})
}
