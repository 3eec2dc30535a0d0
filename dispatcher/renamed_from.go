package dispatcher

import "github.com/carillon-dev/carillon/dispatcher/input"

// RenamedFrom holds the former names of declared triggers by their present ones, as configuration says them: it declares
// how things shall be, so it cannot ask for a JobRename, which is done once.
type RenamedFrom map[string]string

// Check returns, as Problems or nil, what cannot be meant, whatever the job is now: triggers are those that are declared.
// Problems point to renamed_from of the declared trigger.
func (r RenamedFrom) Check(triggers map[string]Trigger) error {
	var problems input.Problems
	by := map[string]string{} // present names by former ones
	for _, name := range input.SortedKeys(r) {
		old, at := r[name], input.Pointer("triggers", name, "renamed_from")
		_, declared := triggers[old]
		_, moves := r[old]
		before := len(problems)
		input.CheckName(&problems, at, old)
		switch other, taken := by[old]; {
		case len(problems) > before:
		case old == name:
			problems.Add(at, input.CodeNameTaken, "%s is the name of the trigger itself; give the one that it had before, or leave it out",
				input.Echo(old))
		case taken:
			problems.Add(at, input.CodeNameTaken, "trigger %s is renamed to %s already, and can get one name only", input.Echo(old),
				input.Echo(other))
		case declared && !moves:
			problems.Add(at, input.CodeNameTaken,
				"trigger %s is declared, too; remove its block, or leave out renamed_from if this is another trigger",
				input.Echo(old))
		}
		by[old] = name
	}
	return problems.Err()
}

// Pending returns the new names of the triggers that are still to be renamed, by their names in job. done is what was
// in force when job was declared last, which has been dealt with. The error is Problems: job has no trigger of the former
// name, or another one of the present name.
func (r RenamedFrom) Pending(done RenamedFrom, job Job) (map[string]string, error) {
	moves := map[string]bool{}
	for name, old := range r {
		_, here := job.Triggers[old]
		moves[old] = here && done[name] != old
	}
	var problems input.Problems
	pending := map[string]string{}
	for _, name := range input.SortedKeys(r) {
		old, at := r[name], input.Pointer("triggers", name, "renamed_from")
		_, exists := job.Triggers[name]
		_, here := job.Triggers[old]
		switch {
		case done[name] == old, exists && !here: // it has been renamed
		case !here:
			problems.Add(at, input.CodeNotFound, "the job has no trigger %s%s; leave renamed_from out if %s is a new trigger",
				input.Echo(old), input.DidYouMean(old, input.SortedKeys(job.Triggers)), input.Echo(name))
		case exists && !moves[name]:
			problems.Add(at, input.CodeNameTaken,
				"the job has a trigger %s already, so %s cannot get its name; leave renamed_from out, and %s is removed",
				input.Echo(name), input.Echo(old), input.Echo(old))
		default:
			pending[old] = name
		}
	}
	return pending, problems.Err()
}
