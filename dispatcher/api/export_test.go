package api

import "net/http"

// CallbackPatience is how long a callback of an executor waits.
const CallbackPatience = callbackPatience

// Routes lists all routes that the API serves. Body says of each that it takes one.
func Routes() []Route {
	var all []Route
	for _, rt := range routes {
		rt.Body = rt.Body || rt.Method == http.MethodPut || rt.Method == http.MethodPatch
		all = append(all, rt.Route)
	}
	return all
}
