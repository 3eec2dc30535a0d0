package storetest

import (
	"github.com/carillon-dev/carillon/dispatcher"
)

// Batch describes how a store method that the engine calls isolates a bad row.
type Batch struct {
	// Works are the kinds of work that set rows aside; nil: the method has no batch over the rows of several jobs.
	Works []dispatcher.Work
	// Why it has none.
	Why string
}

// The reasons of methods without a batch.
const (
	oneRow  = "it is about one row, one job or one app"
	plain   = "it reads numbers and names, which it does not compute with"
	decoded = "a definition that cannot be decoded has its error with it, or is shown without"
	fleet   = "it is about nodes, locks or the database, and reads nothing that apps have"
	steps   = "it is about one object, which notes why its step failed and when it is tried again"
)

// Batches are all methods that the engine calls, by name. A missing method fails a test of the engine, and one with
// works that no test poisons fails a test of package store.
var Batches = map[string]Batch{
	"AcquireEndpoints":   {Works: []dispatcher.Work{dispatcher.WorkSlots}},
	"Acquire":            {Works: []dispatcher.Work{dispatcher.WorkSlots}},
	"Adopt":              {Works: []dispatcher.Work{dispatcher.WorkAdopt, dispatcher.WorkRetry}},
	"Adoptable":          {Works: []dispatcher.Work{dispatcher.WorkUnfold}},
	"Begin":              {Works: []dispatcher.Work{dispatcher.WorkBegin}},
	"Claim":              {Works: []dispatcher.Work{dispatcher.WorkFire}},
	"DueHosts":           {Works: []dispatcher.Work{dispatcher.WorkHost}},
	"EndBroadcasts":      {Works: []dispatcher.Work{dispatcher.WorkBroadcast}},
	"ExpireEndpoints":    {Works: []dispatcher.Work{dispatcher.WorkEndpoints}},
	"ExpirePauses":       {Works: []dispatcher.Work{dispatcher.WorkPauses}},
	"FailLostRuns":       {Works: []dispatcher.Work{dispatcher.WorkLost}},
	"LoseRuns":           {Works: []dispatcher.Work{dispatcher.WorkLost}},
	"FollowEnds":         {Works: []dispatcher.Work{dispatcher.WorkFollow}},
	"FollowSwitches":     {Works: []dispatcher.Work{dispatcher.WorkPauses}},
	"GiveUp":             {Works: []dispatcher.Work{dispatcher.WorkGiveUp}},
	"GrantWaiting":       {Works: []dispatcher.Work{dispatcher.WorkSlots}},
	"KeepBytes":          {Works: []dispatcher.Work{dispatcher.WorkUsage}},
	"WaitingRuns":        {Works: []dispatcher.Work{dispatcher.WorkUsage}},
	"MendLeaks":          {Works: []dispatcher.Work{dispatcher.WorkRetry}},
	"Purge":              {Works: []dispatcher.Work{dispatcher.WorkPurge}},
	"Record":             {Works: []dispatcher.Work{dispatcher.WorkRecord}},
	"Release":            {Works: []dispatcher.Work{dispatcher.WorkBegin}},
	"ReleaseSlots":       {Works: []dispatcher.Work{dispatcher.WorkSlots}},
	"RescheduleForZones": {Works: []dispatcher.Work{dispatcher.WorkZones}},
	"RollUp":             {Works: []dispatcher.Work{dispatcher.WorkStates}},
	"RollUpObjectives":   {Works: []dispatcher.Work{dispatcher.WorkObjectives}},
	"RollUpStatistics":   {Works: []dispatcher.Work{dispatcher.WorkStatistics}},
	"ScheduleNext":       {Works: []dispatcher.Work{dispatcher.WorkFire}},
	"Settle":             {Works: []dispatcher.Work{dispatcher.WorkFire}},
	"SkipRolledBack":     {Works: []dispatcher.Work{dispatcher.WorkZones, dispatcher.WorkLost}},
	"UnfoldClaims":       {Works: []dispatcher.Work{dispatcher.WorkUnfold}},
	"WatchAlerts":        {Works: []dispatcher.Work{dispatcher.WorkAlerts}},

	"AppCalendars": {Why: oneRow}, "AppHistory": {Why: oneRow}, "Broadcast": {Why: oneRow}, "BroadcastEndpoints": {Why: oneRow},
	"CalendarsAt": {Why: oneRow}, "Disable": {Why: oneRow}, "DropHostWait": {Why: oneRow}, "Fires": {Why: oneRow},
	"GroupVersion": {Why: oneRow}, "HostResponded": {Why: oneRow}, "JobKey": {Why: oneRow}, "LatestFires": {Why: oneRow},
	"Quarantine": {Why: oneRow}, "Run": {Why: oneRow}, "TakeProbe": {Why: oneRow},
	"AppHolds": {Why: plain}, "TriggerHistories": {Why: plain}, "RecordOutage": {Why: oneRow},
	"Begun": {Why: plain}, "LeftSlots": {Why: plain}, "EveryJobName": {Why: oneRow},

	"AwaitedCallbacks": {Why: plain}, "CarriedStatesByID": {Why: plain}, "Census": {Why: plain}, "Due": {Why: plain},
	"EndedDelays": {Why: plain}, "LabelSets": {Why: plain}, "NextRetry": {Why: plain}, "OpenBackfills": {Why: plain},
	"OpenBulkActions": {Why: plain}, "OverdueApps": {Why: plain}, "TriggersByID": {Why: plain}, "Upcoming": {Why: plain},

	"Held": {Why: decoded}, "JobsByID": {Why: decoded}, "RunInputs": {Why: decoded},

	"Clock": {Why: fleet}, "Deregister": {Why: fleet}, "Heartbeat": {Why: fleet}, "Installation": {Why: fleet}, "Listen": {Why: fleet},
	"Lock": {Why: fleet}, "MarkDead": {Why: fleet}, "Register": {Why: fleet}, "Rollback": {Why: fleet}, "SetNodeState": {Why: fleet},
	"Unlock": {Why: fleet}, "ZonesChanged": {Why: fleet}, "ZoneSetting": {Why: fleet}, "ZoneArchive": {Why: fleet}, "NoteZones": {Why: fleet},

	"FeedBackfill": {Why: steps}, "StepBulkAction": {Why: steps},
	"RemoveCutOffImports": {Why: "it works on one app after the other, which its owner may import again"},
	"RetrySetAside":       {Why: "it works on one row after the other, and sets aside those that fail"},
}
