package api

import (
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (a *API) listNodes(r *request) (answer, error) {
	nodes, err := a.store.Nodes(r.Context())
	if nodes == nil {
		nodes = []dispatcher.Node{}
	}
	return answer{body: list[dispatcher.Node]{Items: nodes}}, err
}

// setNode serves what an operator may ask of a node.
func setNode(state dispatcher.NodeState) func(*API, *request) (answer, error) {
	return func(a *API, r *request) (answer, error) {
		if err := r.decodeNothing(); err != nil {
			return answer{}, err
		}
		id, err := dispatcher.ParseNodeID(r.PathValue("node"))
		if err != nil {
			return answer{}, dispatcher.NotFound("node", r.PathValue("node"))
		}
		node, err := a.store.SetNodeState(r.Context(), id, state, dispatcher.Change{Actor: r.token.Name})
		if errors.Is(err, dispatcher.ErrRewound) {
			return answer{}, refuse(dispatcher.CodeStateConflict, "%s", err)
		}
		return answer{body: node}, conflict(err, "its process registers anew under another id, if it lives")
	}
}
