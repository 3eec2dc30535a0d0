// Package limit bounds the use of a node by its callers: how many requests they make in a minute (Rates), how many
// are under way at once (Places), how many connections they keep (Listener), how long they take to send and to read
// (Transfers), how much memory their requests use at once (Memory), and how many lines they cause in the log (Lines).
// Its own memory is bounded for any number of callers.
//
// # Connections
//
// Only the header of a request identifies its caller, so the Listener accepts every connection, and closes another one
// for it if there are too many. It does not close held connections. A request holds its connection only while the node
// works on it. The node works on a bounded number of requests, fewer than connections, so one can always be closed:
//
//	accepted, header on its way      not held   a header has a deadline of its own
//	caller unknown, or a probe       not held
//	waits for its place              not held   Places bound requests by token, app and address
//	body on its way                  not held   Transfers bounds its time and rate
//	waits for its turn               not held
//	the node works on it             held       Places bound the work for apps and for operators, each for itself
//	response on its way              not held   Transfers bounds its time and rate
//
// So probes and operators get in without reserved connections: no number of slow clients keeps them out, with or
// without a token, from one address or many, or behind a load balancer.
package limit
