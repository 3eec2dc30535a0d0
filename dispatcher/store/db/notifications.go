package db

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

const (
	// mostJobsNotified is how many changed jobs one transaction names. More are sent as one notification: reading the
	// whole window costs less.
	mostJobsNotified = 20
	// mostPayload bounds a payload in bytes; PostgreSQL takes 7,999.
	mostPayload = 4000
)

// Coalesced drops redundant notifications, and replaces many changed jobs by one notification that anything may have
// changed.
func Coalesced(all []dispatcher.Notification) []dispatcher.Notification {
	everything, jobs := false, map[int64]bool{}
	for _, one := range all {
		everything = everything || one == dispatcher.Notification{}
		if one.JobID != 0 {
			jobs[one.JobID] = true
		}
	}
	everything = everything || len(jobs) > mostJobsNotified
	var kept []dispatcher.Notification
	if everything {
		kept = append(kept, dispatcher.Notification{})
	}
	for _, one := range all {
		// A node that reads everything finds these changes, too.
		said := everything && one.Run == "" && !one.Nodes && !one.Callback && !one.Backfill && !one.Bulk && !one.Ends
		if !said && !slices.Contains(kept, one) {
			kept = append(kept, one)
		}
	}
	return kept
}

// payloads writes notifications as texts, one line each, in as few texts as possible.
func payloads(all []dispatcher.Notification) []string {
	var texts []string
	for _, one := range all {
		line := notificationLine(one)
		if last := len(texts) - 1; last >= 0 && len(texts[last])+1+len(line) <= mostPayload {
			texts[last] += "\n" + line
		} else {
			texts = append(texts, line)
		}
	}
	return texts
}

// The first words of lines, by kind of change.
const (
	lineAll, lineAdopt, lineNodes = "all", "adopt", "nodes"
	lineJob, lineApp, lineGroup   = "job", "app", "group"
	lineCancelled, lineCallback   = "cancelled", "callback"
	lineEnds                      = "ends"
	lineBackfill, lineBulk        = "backfill", "bulk"
)

func notificationLine(one dispatcher.Notification) string {
	switch {
	case one.Run != "":
		return fmt.Sprintf("%s %s %d %d", lineCancelled, one.Run, one.Token, one.Attempt)
	case one.Adopt:
		return lineAdopt
	case one.Callback:
		return lineCallback
	case one.Ends:
		return lineEnds
	case one.Backfill:
		return lineBackfill
	case one.Bulk:
		return lineBulk
	case one.Nodes:
		return lineNodes
	case one.JobID != 0:
		return lineJob + " " + strconv.FormatInt(one.JobID, 10)
	case one.Group != "":
		return lineGroup + " " + one.App + " " + one.Group
	case one.App != "":
		return lineApp + " " + one.App
	}
	return lineAll
}

// notificationsIn reads the result of payloads. A line that this version does not know, sent by a newer node, means
// that anything may have changed.
func notificationsIn(payload string) []dispatcher.Notification {
	var all []dispatcher.Notification
	for line := range strings.SplitSeq(payload, "\n") {
		all = append(all, readNotification(strings.Fields(line)))
	}
	return all
}

func readNotification(words []string) dispatcher.Notification {
	var kind string
	if len(words) > 0 {
		kind = words[0]
	}
	switch {
	case kind == lineAdopt:
		return dispatcher.Notification{Adopt: true}
	case kind == lineCallback:
		return dispatcher.Notification{Callback: true}
	case kind == lineEnds:
		return dispatcher.Notification{Ends: true}
	case kind == lineBackfill:
		return dispatcher.Notification{Backfill: true}
	case kind == lineBulk:
		return dispatcher.Notification{Bulk: true}
	case kind == lineNodes:
		return dispatcher.Notification{Nodes: true}
	case kind == lineJob && len(words) == 2:
		id, _ := strconv.ParseInt(words[1], 10, 64) // 0, which means everything, if it is not a number
		return dispatcher.Notification{JobID: id}
	case kind == lineApp && len(words) == 2:
		return dispatcher.Notification{App: words[1]}
	case kind == lineGroup && len(words) == 3:
		return dispatcher.Notification{App: words[1], Group: words[2]}
	case kind == lineCancelled && len(words) == 4:
		token, badToken := strconv.ParseInt(words[2], 10, 64)
		attempt, badAttempt := strconv.Atoi(words[3])
		if badToken == nil && badAttempt == nil {
			return dispatcher.Notification{Run: words[1], Token: run.Token(token), Attempt: attempt}
		}
	}
	return dispatcher.Notification{}
}
