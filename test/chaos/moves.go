package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
	"github.com/carillon-dev/carillon/test/freeport"
)

// installation is one of the two between which an app moves: the three nodes, or a single node that is never killed.
type installation struct {
	name  string
	nodes []*node
	*declarer
}

// mover moves an app between two installations and back, by export and import.
type mover struct {
	here, there installation
	unscoped    *declarer // with a token that may not move apps
	log         *history.Log
}

// newMover starts the other installation, over a database of the same server.
func newMover(ctx context.Context, c *chaos) (*mover, error) {
	if err := c.database.Execute(ctx, "postgres", "CREATE DATABASE "+history.Elsewhere); err != nil {
		return nil, err
	}
	token, err := c.token(ctx, history.Elsewhere, "chaos", "read,write,export,import,admin")
	if err != nil {
		return nil, err
	}
	if err := c.database.script(ctx, history.Elsewhere, watch); err != nil {
		return nil, err
	}
	plain, err := c.token(ctx, databaseName, "unscoped", "read,run,write")
	if err != nil {
		return nil, err
	}
	listen, err := freeport.Address(ctx)
	if err != nil {
		return nil, err
	}
	n, err := assemble(ctx, c, seat{name: history.Elsewhere, listen: listen, hub: "127.0.0.1", database: history.Elsewhere})
	if err != nil {
		return nil, err
	}
	c.elsewhere = n
	if err := n.start(""); err != nil {
		return nil, err
	}
	if err := c.await(ctx, n); err != nil {
		return nil, err
	}
	log, err := history.Create(c.dir, history.Moves, false)
	return &mover{
		here:     installation{databaseName, c.nodes, c.declared},
		there:    installation{history.Elsewhere, []*node{n}, &declarer{chaos: c, token: token}},
		unscoped: &declarer{chaos: c, token: plain}, log: log,
	}, err
}

// moving returns the jobs of the moving app.
func moving() []job {
	return []job{
		{app: history.Moved, name: "dense-0", path: "/ok", expression: "rate(1s)"},
		{app: history.Moved, name: "dense-1", path: "/ok", expression: "*/2 * * * * ?"},
		{app: history.Moved, name: "slow", path: "/slow", expression: "rate(2s)"},
		{app: history.Moved, name: "flaky-0", path: "/flaky", expression: "rate(1s)", retry: &patient},
		{app: history.Moved, name: "flaky-1", path: "/flaky", expression: "rate(1s)", retry: &patient},
		{app: history.Moved, name: "payout", path: "/ok", expression: "rate(2s)", once: true},
		{app: history.Moved, name: "queue", path: "/slow", expression: "rate(2s)", concurrency: "queue"},
	}
}

// moveApps moves the app there and back, at least once, until ctx ends, and leaves it here. The app may come back
// at once: the deletion here has recorded due fires as missed, and the import takes back those that come with it.
func (m *mover) moveApps(ctx context.Context) {
	c := m.here.chaos
	for first := true; first || ctx.Err() == nil; first = false {
		for _, way := range [][2]installation{{m.here, m.there}, {m.there, m.here}} {
			if way[0].name == databaseName {
				pause(ctx, c.between(3*time.Second, 6*time.Second))
			} else {
				pause(context.WithoutCancel(ctx), c.between(0, 4*time.Second))
			}
			if err := m.move(ctx, way[0], way[1]); err != nil {
				c.trouble(fmt.Errorf("move app %s to %s: %w", history.Moved, way[1].name, err))
				return
			}
		}
	}
	if err := m.log.Close(); err != nil {
		c.trouble(err)
	}
}

const movedPath = "/v1/apps/" + history.Moved

// move moves the app in the manual's order: disable, export, import, delete.
func (m *mover) move(ctx context.Context, from, to installation) error {
	done := history.Move{From: from.name, To: to.name, Begun: time.Now()}
	var export map[string]any
	var moved struct {
		Waiting []history.WaitingRun `json:"waiting_runs"`
	}
	if err := from.disable(ctx); err != nil {
		return err
	}
	err := from.until(ctx, "export", func(ctx context.Context, n *node) (bool, error) {
		response, err := from.ask(ctx, n, http.MethodGet, movedPath+"/export", "*", nil)
		if err != nil || response.status != http.StatusOK {
			return false, said(response, err)
		}
		return true, errors.Join(json.Unmarshal(response.body, &export), json.Unmarshal(response.body, &moved))
	})
	if err != nil {
		return err
	}
	if from.name == databaseName {
		if err := m.demandScopes(ctx); err != nil {
			return err
		}
	}
	done.Exported, done.Waiting = time.Now(), moved.Waiting
	app, _ := export["app"].(map[string]any) // the import reports an invalid one
	app["enabled"] = true
	body, err := json.Marshal(export)
	if err == nil {
		err = to.importApp(ctx, body)
	}
	if err != nil {
		return err
	}
	done.Imported = time.Now()
	if err := from.removeApp(ctx); err != nil {
		return err
	}
	done.Removed = time.Now()
	return m.log.Append(done)
}

// demandScopes requires that a token for changes can neither export nor import.
func (m *mover) demandScopes(ctx context.Context) error {
	for path, method := range map[string]string{"/export": http.MethodGet, "/import": http.MethodPost} {
		err := m.here.until(ctx, "scope", func(ctx context.Context, n *node) (bool, error) {
			response, err := m.unscoped.ask(ctx, n, method, movedPath+path, "*", []byte("{}"))
			if err == nil && response.status < 300 {
				m.here.trouble(fmt.Errorf("a token without the scope for %s got %d", path, response.status))
			}
			return err == nil && (response.status == http.StatusForbidden || response.status < 300), said(response, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// disable disables the app.
func (i installation) disable(ctx context.Context) error {
	return i.until(ctx, "disable", func(ctx context.Context, n *node) (bool, error) {
		app, err := i.ask(ctx, n, http.MethodGet, movedPath, "*", nil)
		var is struct{ Enabled bool }
		switch {
		case err != nil || app.status != http.StatusOK:
			return false, said(app, err)
		case json.Unmarshal(app.body, &is) == nil && !is.Enabled:
			return true, nil
		}
		_, err = i.ask(ctx, n, http.MethodPut, movedPath, app.tag, []byte(`{"enabled": false}`))
		return false, err // the next round checks
	})
}

// importApp imports the app. After a lost response the app may exist or not, and the next import
// removes that of a dead node.
func (i installation) importApp(ctx context.Context, export []byte) error {
	return i.until(ctx, "import", func(ctx context.Context, n *node) (bool, error) {
		response, err := i.ask(ctx, n, http.MethodPost, movedPath+"/import", "*", export)
		if err == nil && response.status < 300 {
			return true, nil
		}
		app, wrong := i.ask(ctx, n, http.MethodGet, movedPath, "*", nil)
		there := wrong == nil && app.status == http.StatusOK && !bytes.Contains(app.body, []byte(`"importing":true`))
		return there, said(response, err)
	})
}

// removeApp deletes the app with its jobs and its group.
func (i installation) removeApp(ctx context.Context) error {
	err := all(ctx, moving(), func(ctx context.Context, j job) error { return i.removeAt(ctx, movedPath+"/jobs/"+j.name) })
	if err == nil {
		err = i.removeAt(ctx, movedPath+"/groups/"+groupName)
	}
	if err == nil {
		err = i.removeAt(ctx, movedPath)
	}
	return err
}

// removeAt deletes the object at a path, at any revision.
func (i installation) removeAt(ctx context.Context, path string) error {
	return i.until(ctx, "delete "+path, func(ctx context.Context, n *node) (bool, error) {
		is, err := i.ask(ctx, n, http.MethodGet, path, "*", nil)
		if err != nil || is.status != http.StatusOK {
			return err == nil && is.status == http.StatusNotFound, said(is, err)
		}
		gone, err := i.ask(ctx, n, http.MethodDelete, path, is.tag, nil)
		return err == nil && gone.status < 300, said(gone, err)
	})
}

// until tries one node after the other until the action is done, even after the time for faults is over.
func (i installation) until(ctx context.Context, what string, do func(context.Context, *node) (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.settle+90*time.Second)
	defer cancel()
	var last error
	for turn := i.intN(len(i.nodes)); ctx.Err() == nil; turn++ {
		done, err := do(ctx, i.nodes[turn%len(i.nodes)])
		if done {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		pause(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("%s at %s: %w", what, i.name, last)
}

// said returns the problem of a request.
func said(r response, err error) error {
	if err == nil {
		err = errors.New("responded")
	}
	return fmt.Errorf("%w: %d: %s", err, r.status, r.body)
}

// settleMoved makes the declarer know the re-imported app.
func (m *mover) settleMoved(ctx context.Context) error {
	for _, j := range moving() {
		path := movedPath + "/jobs/" + j.name
		err := m.here.until(ctx, "read", func(ctx context.Context, n *node) (bool, error) {
			job, err := m.here.ask(ctx, n, http.MethodGet, path, "*", nil)
			if err != nil || job.status != http.StatusOK {
				return false, said(job, err)
			}
			m.here.declarer.mu.Lock()
			defer m.here.declarer.mu.Unlock()
			m.here.tags[path] = job.tag
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
