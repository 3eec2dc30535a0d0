package console

import (
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// nodesPage is the list of the nodes.
type nodesPage struct {
	Nodes []nodeRow
	// Fires is how many all nodes claimed in the latest minute.
	Fires int
}

// nodeRow is a node, and what is wrong with it.
type nodeRow struct {
	dispatcher.Node
	PerSecond         float64
	Saturated, Skewed bool
}

// Shown is the state that the list shows: a node that is active and not well does not look as if it were.
func (n nodeRow) Shown() string {
	switch {
	case n.State != dispatcher.NodeActive:
	case n.Skewed:
		return "skewed"
	case n.Saturated:
		return "saturated"
	}
	return string(n.State)
}

func showNodes(v *visit) (content, error) {
	list, err := v.client.Nodes(v.Context())
	page := nodesPage{}
	for _, node := range list.Items {
		alive := node.State != dispatcher.NodeDead
		offset := node.ClockOffset.Std().Abs()
		page.Nodes = append(page.Nodes, nodeRow{node, float64(node.Fires) / 60, alive && node.Lag.Std() > dispatcher.SaturatedLag,
			alive && offset > dispatcher.WrongClock})
		if alive {
			page.Fires += node.Fires
		}
	}
	return content{Data: page, Refresh: true}, err
}

// showNodeState returns the page that asks before a node gets a state.
func showNodeState(name string) func(*visit) (content, error) {
	return func(v *visit) (content, error) {
		list, err := v.client.Nodes(v.Context())
		if err != nil {
			return content{}, err
		}
		active := 0
		var found *dispatcher.Node
		for _, node := range list.Items {
			if node.State == dispatcher.NodeActive {
				active++
			}
			if node.ID.String() == v.PathValue("node") {
				found = &node
			}
		}
		if found == nil {
			return content{}, notFound("node", v.PathValue("node"))
		}
		return v.confirm(name, confirmPage{
			Facts: []fact{v.fact("nodes.in_flight", found.InFlight), v.fact("nodes.fires", found.Fires), v.fact("nodes.active", active)},
			Harm:  true, Back: v.link("nodes"),
		}, "node", found.Name), nil
	}
}

// setNode returns the action that gives a node a state.
func setNode(state dispatcher.NodeState, notice string) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		id, err := run.ParseNodeID(v.PathValue("node"))
		if err != nil {
			return done{}, notFound("node", v.PathValue("node"))
		}
		node, err := v.client.SetNodeState(v.Context(), id, state)
		return done{to: v.link("nodes"), notice: notice, values: []any{"node", node.Name}}, err
	}
}

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
