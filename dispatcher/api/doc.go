// Package api serves Carillon's HTTP API over a dispatcher.Store.
//
// # The walk of a request
//
// Every route is a row of one table (routes.go): method, path, what the caller must be
// allowed, which query parameters exist, and a function from a request to a response or an
// error. One wrapper (serve.go) does what all have in common, in this order: a request id,
// a deadline, a bound on the body, the bearer token, the names in the path, the query; then
// the function; then the response or the problem is written. Functions never write.
//
// # Errors
//
// Errors are problem+json (RFC 9457) that lists every fault of the input, each with a JSON
// pointer, a code of a closed list and a message. One table (problem.go) says which status a
// code answers with. What the table does not know is internal: it is logged once, with the
// request id, and nothing of its text reaches the caller.
//
// # Bodies
//
// encoding/json takes what it understands and drops the rest, and stops at the first fault.
// decode.go and fill.go are stricter and go on: an unknown field, a field given twice, a number in
// quotes are faults, all reported together with what Validate finds in what could be read.
// Read-only fields are accepted and ignored, so that what GET returned can be edited and PUT.
//
// # Concurrent writers
//
// The ETag of a definition is its revision. If-Match and If-None-Match become conditions of
// the write itself (dispatcher.Change), so they hold under any race. A job's ETag stands for
// its definition: fire times move without changing it.
//
// # Tokens
//
// A token is a name, a scope (read or write) and the apps it is bound to, none meaning all
// of them and the nodes. An app outside the binding answers 403; a run of such an app answers
// 404 like one that does not exist, because run ids are not secrets but whose they are is.
package api
