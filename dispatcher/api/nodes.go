package api

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// listNodes lists nodes, including dead ones until they are cleaned up.
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

// getRollback gets the rollback of the database that waits for a decision; 404 if none does. A rollback means that the
// database lost commits, as after a restore from a backup or a failover to a replica that lagged. Nodes that detect it
// pause themselves. You cannot resume them one by one. The effect shows how many fires and runs the decision is about.
func (a *API) getRollback(r *request) (response, error) {
	rollback, err := a.store.Rollback(r.Context())
	if err == nil && rollback == nil {
		err = dispatcher.NotFound("rollback", "of this database")
	}
	if err == nil && rollback.Choice == "" {
		effect, counted := a.store.RollbackEffect(r.Context(), time.Time{})
		rollback.Effect, err = &effect, counted
	}
	return response{body: rollback}, err
}

// resolveRollback serves skip and replay.
func resolveRollback(choice dispatcher.RollbackChoice) func(*API, *request) (response, error) {
	return func(a *API, r *request) (response, error) {
		rollback, err := a.store.ResolveRollback(r.Context(), choice, r.By())
		return response{body: rollback}, conflict(err, "carillon rollback show says what waits for a choice")
	}
}

// getZones shows the time zone data that the nodes use.
func (a *API) getZones(r *request) (response, error) {
	setting, err := a.store.ZoneSetting(r.Context())
	if err != nil {
		return response{}, err
	}
	return a.zoneStatus(r, setting)
}

// zoneStatus adds the data that nodes use to a setting.
func (a *API) zoneStatus(r *request, setting dispatcher.ZoneSetting) (response, error) {
	nodes, err := a.store.Nodes(r.Context())
	if err != nil {
		return response{}, err
	}
	status := dispatcher.ZoneStatus{ZoneSetting: setting, Nodes: []dispatcher.NodeZones{}}
	for _, node := range nodes {
		if node.State != dispatcher.NodeDead {
			status.Nodes = append(status.Nodes, dispatcher.NodeZones{ID: node.ID, Name: node.Name, Zones: node.Zones})
		}
	}
	return response{body: status}, nil
}

// useZones makes all nodes use one release of time zone data. Each node switches in its next handler round, and fires
// move once all have.
func (a *API) useZones(r *request) (response, error) {
	var given dispatcher.ZoneData
	problems := r.Decode(&given)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	archive, err := base64.StdEncoding.DecodeString(given.Archive)
	if err != nil || len(archive) == 0 {
		problems.Add("/archive", input.CodeZoneData, "archive is not an archive of time zone data in base64; make one with "+
			"carillon zones use, which sends it, or with make zones")
		return response{}, problems.Err()
	}
	zones, err := schedule.OpenZonesLike(archive, schedule.CurrentZones())
	if err != nil {
		problems.Add("/archive", input.CodeZoneData, "archive cannot be used: %v", err)
		return response{}, problems.Err()
	}
	setting, err := a.store.SetZones(r.Context(), zones.Release(), archive, r.By())
	if err != nil {
		return response{}, err
	}
	return a.zoneStatus(r, setting)
}

// resetZones makes each node use its own time zone data.
func (a *API) resetZones(r *request) (response, error) {
	setting, err := a.store.SetZones(r.Context(), "", nil, r.By())
	if err != nil {
		return response{}, err
	}
	return a.zoneStatus(r, setting)
}
