package api

import "github.com/carillon-dev/carillon/dispatcher"

// preview reads nothing but the clock, and that is the database's, by which the schedule
// would be armed.
func (a *API) preview(r *request) (answer, error) {
	var asked dispatcher.PreviewRequest
	faults := r.decode(&asked)
	addMeaning(&faults, asked.Validate())
	if err := faults.Err(); err != nil {
		return answer{}, err
	}
	now, err := a.store.Clock(r.Context())
	if err != nil {
		return answer{}, err
	}
	found, err := asked.Preview(now)
	return answer{body: found}, err
}
