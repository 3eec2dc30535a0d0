package tfconfig

import (
	"maps"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
)

// renamedFromOf returns the former names that a job says of its triggers, as far as they are known.
func renamedFromOf(r *Resource) dispatcher.RenamedFrom {
	all := dispatcher.RenamedFrom{}
	for name, t := range r.root.part("triggers").all() {
		if old, ok := t.part("renamed_from").text(); ok {
			all[name] = old
		}
	}
	return all
}

// rename gives the triggers of a job of the server the names that the files give them, and returns these as differences.
// Without a state, nobody knows whether a swap of names has been done. So what has its name on the server has been renamed.
func (r *Resource) rename(job *dispatcher.Job) []AttributeDifference {
	from := renamedFromOf(r)
	done := dispatcher.RenamedFrom{}
	for name, old := range from {
		if _, exists := job.Triggers[name]; exists {
			done[name] = old
		}
	}
	if len(done) < len(from) { // as in a chain, where a name is freed and taken at once
		done = nil
	}
	names, err := from.Pending(done, *job)
	if err != nil {
		return nil // terraform plan refuses it; the triggers differ
	}
	var found []AttributeDifference
	triggers := maps.Clone(job.Triggers)
	for old := range names {
		delete(triggers, old)
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if old := from[name]; names[old] == name {
			triggers[name] = job.Triggers[old]
			found = append(found, AttributeDifference{Path: "trigger[" + strconv.Quote(name) + "].renamed_from", Files: old})
		}
	}
	job.Triggers = triggers
	return found
}
