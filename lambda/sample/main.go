// Command sample is a Lambda function that Carillon invokes. It adds up the numbers of its payload,
// once for each event. If an event comes again, it returns the stored result.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	runtime "github.com/aws/aws-lambda-go/lambda"

	"github.com/carillon-dev/carillon/lambda"
)

// order is the payload.
type order struct {
	Amounts []int `json:"amounts"`
	// Fail makes the function fail, to show how Carillon handles that.
	Fail bool `json:"fail"`
}

// receipt is the result. Calls counts how often this instance has done the work.
type receipt struct {
	Run   string `json:"run"`
	Total int    `json:"total"`
	Calls int    `json:"calls"`
}

func main() {
	var memory lambda.Memory
	calls := 0
	work := func(_ context.Context, event lambda.Event) (any, error) {
		var o order
		if err := json.Unmarshal(event.Payload, &o); err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		if o.Fail {
			return nil, errors.New("told to fail")
		}
		calls++ // an instance handles one invocation at a time
		r := receipt{Run: event.Carillon.Run, Calls: calls}
		for _, amount := range o.Amounts {
			r.Total += amount
		}
		return r, nil
	}
	runtime.Start(lambda.Fenced(&memory, lambda.Once(&memory, work)))
}
