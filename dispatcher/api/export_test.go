package api

import (
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher/access"
)

// CallbackPatience is how long a callback of an executor waits.
const CallbackPatience = callbackPatience

// Route is what a route declares of itself.
type Route struct {
	Method, Path string
	Scope        access.Scope
	OrScope      access.Scope
	AllApps      bool
	AnyScope     bool
	// Body says that the route takes a body.
	Body bool
}

// Routes lists all routes that the API serves.
func Routes() []Route {
	var all []Route
	for _, rt := range routes {
		all = append(all, Route{
			Method: rt.method, Path: rt.path, Scope: rt.scope, OrScope: rt.orScope, AllApps: rt.allApps, AnyScope: rt.anyScope,
			Body: rt.body || rt.method == http.MethodPut || rt.method == http.MethodPatch,
		})
	}
	return all
}
