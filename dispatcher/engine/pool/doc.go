// Package pool holds claimed runs until they are due and executes them with a bounded number of
// workers.
//
//	Admit or Reserve -> Submit or Enqueue -> pending -> fair queue -> worker -> Attempt
//	  takes a place                          until due   in turns
//
// A run is claimed only when it has a place in the pool. Places are limited in total, for each app
// and for each host, so the pool never blocks a caller and never rejects a run. The limits apply
// twice: to the runs that are claimed and to those that are attempted.
//
// # Order
//
// Runs that are due wait in a FairQueue. Apps take turns by weight. Within an app, runs on time go
// before runs that catch up, and a higher priority goes first. The runs of one trigger never
// overtake each other.
//
// # Slow attempts
//
// An attempt that takes longer than half a second moves to a share of places of its own, and so do
// later runs of its job until the job recovers. An endpoint that hangs therefore does not use up
// the workers of the others.
//
// # Shutdown
//
// Close begins no more attempts, TakeNotAttempted returns the runs that still wait, and Drain waits
// for the attempts in flight and then cuts off the rest.
package pool
