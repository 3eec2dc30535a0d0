package console

import (
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rollbackPage is the rollback that is not resolved; nil: there is none.
type rollbackPage struct{ *dispatcher.Rollback }

func showRollback(v *visit) (content, error) {
	found, err := v.client.Rollback(v.Context())
	if errors.Is(err, dispatcher.ErrNotFound) {
		return content{Data: rollbackPage{}, Refresh: true}, nil
	}
	return content{Data: rollbackPage{&found}, Refresh: true}, err
}

// showRollbackChoice returns the page that asks before a rollback is resolved.
func showRollbackChoice(name string) func(*visit) (content, error) {
	return func(v *visit) (content, error) {
		found, err := v.client.Rollback(v.Context())
		if err != nil {
			return content{}, err
		}
		return v.confirm(name, confirmPage{
			Facts: []fact{v.fact("rollback.at", v.TimeHTML(found.At)), v.fact("rollback.reason", found.Reason)}, Harm: true,
			Back: v.link("rollback"),
		}), nil
	}
}

// resolveRollback returns the action that makes the choice.
func resolveRollback(choice dispatcher.RollbackChoice) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		_, err := v.client.ResolveRollback(v.Context(), choice)
		return done{to: v.link("rollback"), notice: "rollback.notice." + string(choice)}, err
	}
}
