// Package pool holds claimed runs until they are due and executes them with a bounded number of
// workers.
//
//	Admit -> claim -> Submit -> pending -> fair queue -> worker -> Attempt
//	takes a place              until due   in turns
//
// A run is claimed or adopted only when it has a place in the pool. So the pool never holds more than it has places
// for, never blocks a caller, and never rejects a run that was won. A run without a place stays in the database, where
// other nodes see it.
//
// # One rule for all bounds
//
// Apps share the pool, the hosts that an app calls share its part, and the jobs that call a host share its part. All of
// these are shares, with one rule for each of them:
//
//	A share may hold a fixed part of its own places plus the free places of its parent.
//
// The part of an app is three quarters (AppWorkers of Workers). In an empty pool of 1,000 places one app gets 750:
// three quarters of the 750 that it holds and the 250 that are free. If that app hangs, another gets 187 of the 250 at
// once, and a third finds 47. As the places of the first return, all three settle at 300, and 100 stay free for the
// next. However many apps hang, a newcomer finds places, and no app needs a limit of its own: each may use the places
// that the others leave free. The part of a host is two thirds of its app's (HostWorkers of AppWorkers), that of a job
// three quarters of its host's. So a job that hangs leaves room for other jobs at its host, those for other hosts of
// the app, and all of them for other apps.
//
// The pool does not track slow jobs. A slow attempt keeps its place for longer, so a slow job meets its bound earlier,
// and a fast one never does.
//
// The rule holds twice: for the runs that are claimed (Workers plus Queue places) and for the attempts in flight
// (Workers). Catching up is a share as well, of a quarter, so that fires on time find places. A job may also have a
// bound of its own (AtOnce), which counts attempts only: more of its runs may be claimed and wait here.
//
// A share that was full opens to claims when an eighth of it is left again, so that a saturated node
// claims in batches and not one by one.
//
// # Order
//
// Runs that are due wait in a FairQueue. Apps take turns by weight. Within an app, runs on time go before runs that
// catch up, and a higher priority goes first. The runs of one trigger never overtake each other. The queue skips a full
// share as a whole, so it delays no others.
//
// # Shutdown
//
// Close begins no more attempts, TakeNotAttempted returns the runs that still wait, and Drain waits
// for the attempts in flight and then cuts off the rest.
package pool
