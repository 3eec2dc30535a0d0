package api

import (
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func (a *API) listNodes(r *request) (response, error) {
	nodes, err := a.store.Nodes(r.Context())
	return response{body: newList(nodes)}, err
}

// setNode serves pause, resume and drain of a node.
func setNode(state dispatcher.NodeState) func(*API, *request) (response, error) {
	return func(a *API, r *request) (response, error) {
		id, err := run.ParseNodeID(r.PathValue("node"))
		if err != nil {
			return response{}, dispatcher.NotFound("node", r.PathValue("node"))
		}
		node, err := a.store.SetNodeState(r.Context(), id, state, r.By())
		if errors.Is(err, dispatcher.ErrRolledBack) {
			return response{}, input.Refuse(input.CodeStateConflict, "%s", err)
		}
		return response{body: node}, conflict(err, "if its process is alive, it registers again under another id")
	}
}

func (a *API) getRollback(r *request) (response, error) {
	rollback, err := a.store.Rollback(r.Context())
	if err == nil && rollback == nil {
		err = dispatcher.NotFound("rollback", "of this database")
	}
	return response{body: rollback}, err
}

// resolveRollback serves skip and replay.
func resolveRollback(choice dispatcher.RollbackChoice) func(*API, *request) (response, error) {
	return func(a *API, r *request) (response, error) {
		rollback, err := a.store.ResolveRollback(r.Context(), choice, r.By())
		return response{body: rollback}, conflict(err, "see GET /v1/rollback")
	}
}
