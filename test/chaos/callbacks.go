package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// callbackURL is the API's URL for the nodes. It does not exist: the caller uses any node, like a load balancer.
const callbackURL = "http://carillon.invalid"

// caller reports the outcomes of attempts that the receiver has accepted.
type caller struct {
	log   *history.Log
	hosts []string // of the nodes
	calls sync.WaitGroup
}

// accepted calls back after a while: mostly once, sometimes twice or never. With hurried, each is completed at once.
func (c *caller) accepted(ctx context.Context, header http.Header, run string, attempt int, hurried <-chan struct{}) {
	c.calls.Go(func() {
		said, times, takes := "complete", 1, rand.N(time.Second)
		switch rand.IntN(10) {
		case 0:
			said = "fail"
		case 1:
			times = 2
		case 2:
			times = 0
		}
		select {
		case <-time.After(takes):
		case <-hurried:
			said, times = "complete", 1
		}
		for range times {
			one := history.Callback{Run: run, Attempt: attempt, Said: said, At: time.Now()}
			one.Status = c.call(ctx, header, said)
			_ = c.log.Append(one) // an unrecorded callback shows as an undeclared success
		}
	})
}

// call tries one node after the other until one responds or time is up, and returns the status.
func (c *caller) call(ctx context.Context, header http.Header, said string) (status int) {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	at, err := url.Parse(header.Get("carillon-callback-url"))
	if err != nil {
		return 0
	}
	for first := rand.IntN(len(c.hosts)); ctx.Err() == nil; first++ {
		status, err := c.ask(ctx, "http://"+c.hosts[first%len(c.hosts)]+at.Path+"/"+said, header.Get("carillon-callback-token"))
		if err == nil && status < 500 {
			return status
		}
		pause(ctx, 50*time.Millisecond)
	}
	return 0
}

func (c *caller) ask(ctx context.Context, url, token string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(`{"message": "done"}`)))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, errors.Join(response.Body.Close())
}
