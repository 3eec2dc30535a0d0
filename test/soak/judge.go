package main

import (
	"fmt"
	"strconv"
)

// bar is a limit for a figure.
type bar struct {
	figure string
	// most bounds the ratio to the young database or, if absolute is set, the value of the old database.
	most     float64
	absolute bool
	// whole means that only a whole run applies the bar: it is about time, which means little in a small run
	// on a busy machine, or about effects of a long snapshot, which a minute already shows.
	whole bool
	// subject begins the sentence about a missed bar.
	subject string
}

// bars are the promises of the issue and the docs.
func bars() []bar {
	return []bar{
		{figure: "lateness_p99", most: 2, whole: true, subject: "the p99 lateness of the healthy app"},
		{figure: "healthy_missing", absolute: true, subject: "the number of the healthy app's fires that did not arrive"},
		{figure: "given_up", absolute: true, subject: "the number of runs that were given up though their target was healthy"},
		{figure: "neighbour_missing", absolute: true,
			subject: "the number of fires of healthy jobs that a broken one on their host delayed for longer than seconds"},
		{figure: "poll", most: 1.5, whole: true, subject: "the time of a poll"},
		{figure: "sweep", most: 1.5, whole: true, subject: "the time of a sweep"},
		{figure: "empty_adoption", most: 1.5, whole: true, subject: "the time of an adoption that finds nothing"},
		{figure: "empty_retry", most: 1.5, whole: true, subject: "the time of a look for due retries that finds none"},
		{figure: "poll_blocks", most: 1.5, subject: "the number of blocks that a poll reads"},
		{figure: "sweep_blocks", most: 1.5, subject: "the number of blocks that a sweep reads"},
		{figure: "empty_adoption_blocks", most: 1.5, whole: true, subject: "the number of blocks that an adoption reads that finds nothing"},
		{figure: "empty_retry_blocks", most: 1.5, subject: "the number of blocks that a look for due retries reads that finds none"},
		{figure: "claim_blocks", most: 2, subject: "the number of blocks that a claim touches"},
		{figure: "record_blocks", most: 2, subject: "the number of blocks that a record touches"},
		{figure: "retry_blocks", most: 2, subject: "the number of blocks that a retry touches"},
		{figure: "adoption_locks", most: 1.5, subject: "the number of locks that an adoption takes"},
		{figure: "cleanup_left", absolute: true, subject: "the number of expired things that the clean-up left"},
		{figure: "node_memory", most: 300, absolute: true, subject: "the memory of a node"},
		{figure: "circuits_per_node", most: 2, absolute: true,
			subject: "the number of open circuits of a node, while one app's host hangs and another's returns 503"},
	}
}

// judge returns an error for each missed bar. A missing figure misses its bar.
func judge(all figures, short bool) (missed []error) {
	for _, b := range bars() {
		if short && b.whole {
			continue
		}
		if err := b.judge(all); err != nil {
			missed = append(missed, err)
		}
	}
	return missed
}

func (b bar) judge(all figures) error {
	f, taken := all.find(b.figure)
	switch {
	case !taken:
		return fmt.Errorf("%s was not measured", b.subject)
	case b.absolute && f.Old > b.most:
		return fmt.Errorf("%s is %s; the most is %s", b.subject, number(f.Old, f.Unit), number(b.most, f.Unit))
	case b.absolute:
		return nil
	case f.Ratio == nil:
		return fmt.Errorf("%s has no ratio: the young database's is 0", b.subject)
	case *f.Ratio > b.most:
		return fmt.Errorf("%s is %s, %s times that of the young database (%s); the most is %s times", b.subject,
			number(f.Old, f.Unit), number(*f.Ratio, ""), number(*f.Young, f.Unit), number(b.most, ""))
	}
	return nil
}

// number formats a value with its unit.
func number(value float64, unit string) string {
	text := strconv.FormatFloat(value, 'f', -1, 64)
	if unit == "" || unit == "count" {
		return text
	}
	return text + " " + unit
}
