package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// stuck is a log that takes nothing until it is let go.
type stuck struct {
	lockedBuffer
	free chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.free
	return s.lockedBuffer.Write(p)
}

func TestUnreadLogDelaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, sink := &stuck{free: make(chan struct{})}, newLogSink()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go sink.run(ctx, out, newLogger(out, "info", "text"))
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

// A reader of the log that stops, or is gone, stops neither fires nor the end of the process.
func TestNodeOutlivesTheReaderOfItsLog(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	token := newToken(t, database)
	r := newReceiver(t, nil)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	defer read.Close()
	// The pipe is full from the start.
	var full error
	if err := must[syscall.RawConn](t)(write.SyscallConn()).Write(func(fd uintptr) bool {
		for full == nil {
			_, full = syscall.Write(int(fd), make([]byte, 1<<12))
		}
		return true
	}); err != nil || !errors.Is(full, syscall.EAGAIN) {
		t.Fatalf("fill a pipe: %v, %v", err, full)
	}
	n := launchNodeIn(t, surroundings{log: write}, database, token, nil, append(quick(), "--log-level=debug")...)
	until(t, "the node to be ready", func() bool { return n.status("/readyz") == http.StatusOK })
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "silent", Enabled: true}, client.Condition{}))
	must[dispatcher.Job](t)(n.PutJob(t.Context(),
		webhookJob("silent", "ticks", r.URL, map[string]string{"tick": "rate(1s)"}), client.Condition{}))
	r.await(t, "fires while nobody reads the log", func(all []arrival) bool { return len(all) >= 3 })
	_ = read.Close()
	before := len(r.all())
	r.await(t, "fires when the log's reader is gone", func(all []arrival) bool { return len(all) >= before+2 })
	n.terminate()
}
