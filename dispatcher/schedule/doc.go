// Package schedule turns the text of a schedule into instants.
//
// # Model
//
// A [Spec] is what a user writes. [Parse] checks all of it and returns a [Schedule], which
// is immutable and responses one question: which instants. Nothing in this package reads the
// clock, so equal Specs give equal answers on every node and at every time.
//
// An instant is a time in UTC to the millisecond. A cron expression describes times of the
// wall clock; a zone maps them to instants. The two are kept apart:
//
//	text --parse--> explicit sets --wallclock.go--> local times --dst.go--> instants
//
// Everything strict happens in the first step: a value out of range, a reversed range, a
// step of zero, trailing junk are errors, never guesses. The second step is the only user
// of gorhill/cronexpr, which sees validated lists and wall time dressed as UTC, never a
// zone. The third step is ours and knows about daylight saving.
//
// # Daylight saving
//
// A local time that does not exist (the clock skips it) does not fire, unless [GapNext]
// asks for the instant at which the gap ends. A local time that comes twice fires once, at
// its last pass, unless [OverlapFirst] or [OverlapBoth] asks otherwise. An expression whose
// hour field covers all 24 hours fires in both passes, for anyone who writes "every 5 minutes"
// means it. Intervals measure elapsed time and know nothing of this. Dialects that name one
// local time a step (at, calendar_interval) have defaults of their own; see [Spec].
//
// # Bounds
//
// Start and end are inclusive. A repeat count is the total of fires and acts as an end. A
// [Calendar] takes instants away, or moves them. All of it is applied outside the
// expression, so that what is compiled from a text can be shared (see [Cache]).
//
// # Time taken
//
// Next is bounded for any input: a cron expression looks at each month once, a jump of the
// clock costs one round, a calendar ends the search after a fixed number of stretches.
package schedule
