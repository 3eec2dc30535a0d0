package api

import (
	"context"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher/api/gate"
)

// CallbackPatience is how long a callback of an executor waits.
const CallbackPatience = callbackPatience

// Routes lists all routes that the API serves. Their Body is set if they take one.
func Routes() []gate.Route {
	var all []gate.Route
	for _, rt := range routes() {
		rt.Body = rt.Body || rt.Method == http.MethodPut || rt.Method == http.MethodPatch
		all = append(all, rt.Route)
	}
	return all
}

// WriteRefusals writes the waiting refusals without a limit of time: a node that ends has half a second for them.
func (a *API) WriteRefusals(ctx context.Context) { a.gate.WriteRefusals(ctx) }
