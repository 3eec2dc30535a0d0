package invoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// keyPatience bounds the wait for the key of callbacks. The timeout of an attempt begins only after it.
const keyPatience = 5 * time.Second

// callbacks tell targets how to end accepted attempts.
type callbacks struct {
	url  string
	read func(context.Context) ([]byte, error)

	// reading holds an element while one attempt reads the key; the others wait for it within their own time.
	reading chan struct{}
	key     atomic.Pointer[[]byte] // nil: not read yet
}

// offer adds to the call of a job with callbacks the data that its target needs for one.
func (c *callbacks) offer(ctx context.Context, call *target.Call) error {
	if call.Target.Callback() == nil {
		return nil
	}
	if c.url == "" || c.read == nil {
		return &attempt.Failure{Class: run.ClassConfig, Err: errors.New("the job has callback, and the node does not know where targets reach " +
			"the API; start it with --callback-url (CARILLON_CALLBACK_URL)")}
	}
	key, err := c.theKey(ctx)
	if err != nil {
		return &attempt.Failure{Class: run.ClassSecret, Err: fmt.Errorf("token of the callback: %w", err)}
	}
	call.Callback = &run.CallToken{
		URL: c.url + "/v1/runs/" + call.Key.String(), Token: run.CallbackToken(key, call.EventID, call.Attempt),
		Timeout: cmp.Or(call.Target.Callback().Timeout, run.DefaultCallbackTimeout),
	}
	return nil
}

// theKey returns the key, which never changes.
func (c *callbacks) theKey(ctx context.Context) ([]byte, error) {
	if key := c.key.Load(); key != nil {
		return *key, nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyPatience)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("another attempt waits for the database: %w", ctx.Err())
	case c.reading <- struct{}{}:
	}
	defer func() { <-c.reading }()
	if key := c.key.Load(); key != nil {
		return *key, nil
	}
	key, err := c.read(ctx)
	if err == nil {
		c.key.Store(&key)
	}
	return key, err
}

// ReadCallbackKey reads the key of callbacks, for at most 5 s, so that attempts need no database for it. If the node
// has no URL for callbacks, it reads nothing. After an error, the first attempt that needs the key reads it.
func (i *Invoker) ReadCallbackKey(ctx context.Context) error {
	if i.callbacks.url == "" || i.callbacks.read == nil {
		return nil
	}
	_, err := i.callbacks.theKey(ctx)
	return err
}
