package main

import "github.com/carillon-dev/carillon/test/chaos/history"

// checkBackfills requires that each instant of the ranges that were asked for has one run, that there is no other, and that the
// counts agree with the runs. What was asked for twice, because its response was lost, leaves all out the second time.
func (j *judge) checkBackfills() {
	runs := map[fire]laterRun{}
	for _, r := range j.later {
		if r.kind == backfill {
			runs[r.fire] = r
		}
	}
	declared := j.latest
	for _, asked := range j.asked {
		name := asked.Job
		schedule, err := newOracle(firstTrigger(j.declared, name))
		if err != nil {
			j.add(unexplained, "backfill of %s: %v", name, err)
			continue
		}
		wanted := schedule.instants(asked.From.UnixMilli()-1, asked.To.UnixMilli())
		for trigger := range declared[name].Triggers {
			for _, at := range wanted {
				f := fire{j.triggerOf[history.After+"/"+name+"/"+trigger], at, backfill}
				if _, ran := runs[f]; !ran {
					j.add(lost, "backfill of %s: instant %s has no run", name, instant(at))
				}
				delete(runs, f)
			}
		}
		j.backfilledInstants += len(wanted)
		queued := 0
		for _, b := range j.backfilled {
			if b.job != name {
				continue
			}
			queued += b.queued
			if b.state != "complete" {
				j.add(unrecovered, "backfill of %s: still %s, %d of %d queued", name, b.state, b.queued, b.total)
			} else if b.total != len(wanted) || b.queued+b.skipped != b.total || b.succeeded+b.failed+b.canceled != b.queued {
				j.add(unexplained, "backfill of %s: complete with %+v, where the range has %d instants", name, b, len(wanted))
			}
		}
		if queued != len(wanted) {
			j.add(unexplained, "backfill of %s: queued %d runs for %d instants", name, queued, len(wanted))
		}
	}
	for _, r := range runs {
		j.add(unexplained, "%s: in no range of a backfill", r.name())
	}
}

// firstTrigger returns the schedule of a job as it was declared at first, before the end of the run moved it.
func firstTrigger(declared []history.Declaration, job string) (t history.Trigger) {
	for _, d := range declared {
		if d.App == history.After && d.Job == job {
			for _, t := range d.Triggers {
				return t
			}
		}
	}
	return t
}
