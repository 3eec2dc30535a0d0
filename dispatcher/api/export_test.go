package api

import "github.com/carillon-dev/carillon/dispatcher"

// CallbackPatience is how long a callback of an executor waits.
const CallbackPatience = callbackPatience

// Route is what a route declares of itself.
type Route struct {
	Method, Path string
	Scope        dispatcher.Scope
	OrScope      dispatcher.Scope
	AllApps      bool
	AnyScope     bool
}

// Routes lists all routes that the API serves.
func Routes() []Route {
	var all []Route
	for _, rt := range routes {
		all = append(all, Route{
			Method: rt.method, Path: rt.path, Scope: rt.scope, OrScope: rt.orScope, AllApps: rt.allApps, AnyScope: rt.anyScope,
		})
	}
	return all
}
