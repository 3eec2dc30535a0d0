package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// If the reader of the log stops or disappears, fires continue and the process can still end.
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
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "silent", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Job](t)(n.PutJob(t.Context(),
		webhookJob("silent", "ticks", r.URL, map[string]string{"tick": "rate(1s)"}), client.Condition{}))
	r.await(t, "fires while nobody reads the log", func(all []arrival) bool { return len(all) >= 3 })
	_ = read.Close()
	before := len(r.all())
	r.await(t, "fires when the log's reader is gone", func(all []arrival) bool { return len(all) >= before+2 })
	n.terminate()
}
