// Package api serves Carillon's HTTP API.
//
// # The path of a request
//
// Every route is a row of one table (routes.go): method, path, required scope, known query parameters, and a function
// from a request to a response or an error. One wrapper (serve.go) takes each request through the gate (gate.Admit),
// which is a list of steps. Then it calls the function and writes the response or the problem document. The functions
// write nothing themselves.
//
// # Errors
//
// An error is a problem document (RFC 9457, application/problem+json) that lists every problem of the input, each with
// a JSON pointer, a code from a closed list and a message. One table (problem.go) maps codes to statuses. An error that
// is not in the table is internal: it is logged once, with the request id, and its text is not sent to the caller.
//
// # Bodies
//
// Package decode reads them, and reports all problems of a body together. The quotas of an import are checked before it
// is decoded.
//
// # Concurrent writers
//
// The ETag of a definition is its revision. If-Match and If-None-Match become conditions of the
// write itself (input.Change), so no race can get around them. The ETag of a job identifies
// its definition: it does not change when fire times move.
//
// # Tokens
//
// A token has a name, scopes and the apps that it is bound to. A token without apps is for all of them, and for the
// nodes. A request for an app that the token is not bound to returns 403. A request for a run of such an app returns
// 404, as for a run that does not exist: run ids are not secret, but the app of a run is.
package api
