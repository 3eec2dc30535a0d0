package api

import (
	"context"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher/api/gate"
)

// CallbackPatience is how long a callback of an executor waits.
const CallbackPatience = callbackPatience

// Routes lists all routes that the API serves. Body says of each that it takes one.
func Routes() []gate.Route {
	var all []gate.Route
	for _, rt := range routes() {
		rt.Body = rt.Body || rt.Method == http.MethodPut || rt.Method == http.MethodPatch
		all = append(all, rt.Route)
	}
	return all
}

// WriteRefusals writes the refusals that wait, however long it takes: a node that ends has half a second for them.
func (a *API) WriteRefusals(ctx context.Context) { a.gate.WriteRefusals(ctx) }
