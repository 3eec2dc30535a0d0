// Package schedule computes the fire times of a schedule from its text.
//
// # Model
//
// A [Spec] is a schedule as a user writes it. [Parse] checks all of it and returns a
// [Schedule], which is immutable and computes instants. This package never reads the clock,
// so equal Specs give equal instants on every node and at every time.
//
// An instant is a time in UTC to the millisecond. A cron expression describes times of the
// wall clock, and a time zone maps them to instants. These are separate steps:
//
//	text --parse--> explicit sets --cron_wallclock.go--> local times --zone_dst.go--> instants
//
// The first step is strict: a value out of range, a reversed range, a step of zero or
// trailing text is an error, never a guess. Only the second step uses gorhill/cronexpr. It
// passes validated lists and local times written as UTC, never a zone. The third step
// handles daylight saving.
//
// # Daylight saving
//
// A local time that does not exist because the clock skips it does not fire; with [GapNext]
// it fires when the gap ends. A local time that comes twice fires once, at its last pass;
// [OverlapFirst] and [OverlapBoth] change that. An expression whose hour field covers all 24
// hours fires in both passes, because "every 5 minutes" should hold during that hour too.
// Intervals measure elapsed time and ignore daylight saving. Dialects in which each step is
// one local time (at, calendar_interval) have their own defaults; see [Spec].
//
// # Bounds
//
// Start and end are inclusive. A repeat count is the total number of fires and acts as an
// end. A [Calendar] excludes instants or moves them. Bounds and calendars apply after the
// expression, so that schedules of the same text share the compiled expression (see [Cache]).
//
// # Cost
//
// Next is bounded for any input: a cron expression looks at each month once, a jump of the
// clock costs one round, and a calendar search ends after a fixed number of stretches.
package schedule
