// Command sample is a worker that adds up the numbers of the payload of job "sum", once for each event. The
// environment configures it: CARILLON_ENDPOINT, CARILLON_TOKEN (scope register), APP, GROUP, ID (default: the
// host name), LISTEN (address and port), URL (where nodes reach it) and SIGNING_SECRET.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/lambda"
	"github.com/carillon-dev/carillon/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		slog.ErrorContext(ctx, "the worker ended", "error", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	w, err := worker.New(worker.Options{
		API: os.Getenv("CARILLON_ENDPOINT"), Token: os.Getenv("CARILLON_TOKEN"), App: os.Getenv("APP"), Group: os.Getenv("GROUP"),
		ID: os.Getenv("ID"), URL: os.Getenv("URL"), SigningSecrets: []string{os.Getenv("SIGNING_SECRET")},
	})
	if err != nil {
		return err
	}
	// Memory is of this process; workers that share the work of a group keep results and fences in a database.
	var memory lambda.Memory
	w.Handle("sum", lambda.Fenced(&memory, lambda.Once(&memory, sum)))

	server := &http.Server{Addr: os.Getenv("LISTEN"), Handler: w, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		failed <- server.ListenAndServe()
		stop() // without a server, the worker leaves its group
	}()
	if err := w.Run(running); err != nil {
		return err
	}
	if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func sum(_ context.Context, event lambda.Event) (any, error) {
	var numbers []int
	if err := json.Unmarshal(event.Payload, &numbers); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	total := 0
	for _, n := range numbers {
		total += n
	}
	return map[string]int{"sum": total}, nil
}
