// Command xxljob is an executor of XXL-JOB with some handlers, for tests. It is written from the published protocol of
// versions 2.1.2 to 3.2 and shares no code with Carillon, so that a test with it shows what any executor would see.
//
// It has these handlers, which all log their parameter:
//
//	demoJobHandler     succeeds
//	invoiceJobHandler  succeeds
//	failing            fails with the parameter as message
//	sleeping           waits for as long as the parameter says, such as 10s, and succeeds
//
// Its settings are environment variables: ADMIN, the addresses of the scheduler, with commas; APP_NAME; ACCESS_TOKEN; LISTEN,
// the address of its server; URL, by which the scheduler finds it; LOG_DIR; BEAT and RETRY, the pauses between registrations
// and between repeated callbacks, 30s unless given.
package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("executor", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, leaves the registry, and delivers the remaining results.
func run(ctx context.Context) error {
	beat, err := pauseOf("BEAT")
	if err != nil {
		return err
	}
	retry, err := pauseOf("RETRY")
	if err != nil {
		return err
	}
	token := os.Getenv("ACCESS_TOKEN")
	admin := &admin{addresses: strings.Split(os.Getenv("ADMIN"), ","), token: token, retry: retry, results: make(chan result, 1000)}
	executor := &executor{token: token, logs: logs{dir: os.Getenv("LOG_DIR")}, admin: admin, threads: map[int32]*thread{}}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", os.Getenv("LISTEN"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: executor, ReadHeaderTimeout: time.Second}
	var parts sync.WaitGroup
	parts.Go(func() { _ = server.Serve(listener) })
	parts.Go(func() { admin.deliver(ctx) })
	me := registration{Group: "EXECUTOR", Key: os.Getenv("APP_NAME"), Value: os.Getenv("URL")}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := admin.post(ctx, "/api/registry", me); err != nil {
			slog.WarnContext(ctx, "register", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	left := admin.post(last, "/api/registryRemove", me)
	executor.stopAll()
	parts.Go(func() { _ = server.Shutdown(last) })
	parts.Wait()
	return errors.Join(left, admin.flush(last))
}

// pauseOf returns the duration in a variable.
func pauseOf(variable string) (time.Duration, error) {
	return time.ParseDuration(cmp.Or(os.Getenv(variable), "30s"))
}
