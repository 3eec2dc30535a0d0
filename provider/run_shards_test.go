package provider_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/compare"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// broadcast is the job crm/nightly, with runs over the six endpoints of a group.
const broadcast = app + `
resource "carillon_endpoint_group" "workers" {
  app      = carillon_app.a.name
  name     = "workers"
  strategy = "broadcast"
  endpoint {
    name = "e0"
    url  = "https://e0.example.com"
  }
  endpoint {
    name = "e1"
    url  = "https://e1.example.com"
  }
  endpoint {
    name = "e2"
    url  = "https://e2.example.com"
  }
  endpoint {
    name = "e3"
    url  = "https://e3.example.com"
  }
  endpoint {
    name = "e4"
    url  = "https://e4.example.com"
  }
  endpoint {
    name = "e5"
    url  = "https://e5.example.com"
  }
}
resource "carillon_job" "j" {
  app  = carillon_app.a.name
  name = "nightly"
  target {
    group { name = carillon_endpoint_group.workers.name }
  }
}
`

// TestRunDataSourcesReadShardsAndCallbacks reads a broadcast: three shards succeeded, two failed
// and one waits for its callback.
func TestRunDataSourcesReadShardsAndCallbacks(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	now := time.Now().UTC().Truncate(time.Second)
	text := func(at time.Time) knownvalue.Check { return knownvalue.StringExact(at.Format(time.RFC3339)) }
	shard := func(index int64, endpoint string) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{
			"index": knownvalue.Int64Exact(index), "total": knownvalue.Int64Exact(6), "endpoint": knownvalue.StringExact(endpoint),
		})
	}
	callback := func(endpoint knownvalue.Check) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{
			"endpoint": endpoint, "deadline": text(now.Add(2 * time.Hour)), "heartbeat_at": text(now),
			"progress": knownvalue.StringExact("half of it"), "percent": knownvalue.Int64Exact(50),
		})
	}
	value := func(source string, at tfjsonpath.Path, want knownvalue.Check) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data."+source, at, want)
	}
	all, shards, parent := "carillon_runs.all", "carillon_runs.shards", "carillon_run.parent"
	accepted, first := "carillon_run.accepted", "carillon_run.first"
	of := func(attribute string) tfjsonpath.Path { return tfjsonpath.New(attribute) }
	id := compare.ValuesSame()
	f.run(t,
		resource.TestStep{Config: f.config(broadcast)},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error { return f.spread(ctx, now) }),
			Config: f.config(broadcast + `
				data "carillon_runs" "all" { app = "crm" }
				data "carillon_run" "parent" { id = data.carillon_runs.all.runs[0].id }
				data "carillon_runs" "shards" {
				  app    = "crm"
				  parent = data.carillon_run.parent.id
				}
				data "carillon_run" "accepted" { id = data.carillon_runs.shards.runs[0].id }
				data "carillon_run" "first" { id = data.carillon_runs.shards.runs[5].id }
			`),
			ConfigStateChecks: []statecheck.StateCheck{
				value(all, of("runs"), knownvalue.ListSizeExact(1)),
				value(parent, of("state"), knownvalue.StringExact("waiting_shards")),
				value(parent, of("shard"), knownvalue.Null()),
				value(parent, of("parent"), knownvalue.Null()),
				value(parent, of("callback"), knownvalue.Null()),
				value(parent, of("shards"), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"total": knownvalue.Int64Exact(6), "succeeded": knownvalue.Int64Exact(3), "failed": knownvalue.Int64Exact(2),
					"superseded": knownvalue.Int64Exact(0), "live": knownvalue.Int64Exact(1),
				})),

				value(shards, of("runs"), knownvalue.ListSizeExact(6)),
				value(shards, of("runs").AtSliceIndex(0), knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"state": knownvalue.StringExact("waiting_callback"), "shard": shard(5, "e5"), "callback": callback(knownvalue.Null()),
				})),
				value(shards, of("runs").AtSliceIndex(5), knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"state": knownvalue.StringExact("succeeded"), "shard": shard(0, "e0"), "callback": knownvalue.Null(),
				})),
				statecheck.CompareValuePairs("data."+parent, of("id"), "data."+shards, of("runs").AtSliceIndex(0).AtMapKey("parent"), id),

				value(accepted, of("callback"), callback(knownvalue.StringExact("e5"))),
				value(accepted, of("shards"), knownvalue.Null()),
				statecheck.CompareValuePairs("data."+parent, of("id"), "data."+accepted, of("parent"), id),
				value(first, of("shard"), shard(0, "e0")),
				value(first, of("attempts").AtSliceIndex(0).AtMapKey("response").AtMapKey("endpoint"), knownvalue.StringExact("e0")),
			},
		},
	)
	d := f.directory(t, providerBlock(""), "data \"carillon_runs\" \"all\" {\n app = \"crm\"\n parent = \"nightly\"\n}\n")
	d.mustFail(t, []string{"plan"}, `run "nightly"`)
}

// adopt makes node 1 adopt the queued runs. It fails unless their number is runs.
func (f *fixture) adopt(ctx context.Context, runs int) ([]run.HeldRun, error) {
	query := dispatcher.AdoptQuery{Node: 1, Token: 1, Limit: 100}
	found, err := f.store.Adoptable(ctx, query)
	if err != nil {
		return nil, err
	}
	held, err := f.store.Adopt(ctx, query, found)
	if err == nil && len(held) != runs {
		err = fmt.Errorf("adopted %d runs, want %d", len(held), runs)
	}
	return held, err
}

// spread runs crm/nightly as a broadcast: three shards succeed, two fail and the last one is
// accepted by its endpoint, which sends a heartbeat. All of it happens at now.
func (f *fixture) spread(ctx context.Context, now time.Time) error {
	node := dispatcher.Node{ID: 1, Name: "node", Version: "test", State: dispatcher.NodeActive}
	if err := f.store.Register(ctx, node, now); err != nil {
		return err
	}
	if _, err := f.outside.RunJob(ctx, "crm", "nightly"); err != nil {
		return err
	}
	held, err := f.adopt(ctx, 1)
	if err != nil {
		return err
	}
	if _, err := f.store.Broadcast(ctx, held[0], []string{"e0", "e1", "e2", "e3", "e4", "e5"}, now); err != nil {
		return err
	}
	shards, err := f.adopt(ctx, 6)
	if err != nil {
		return err
	}
	for i, shard := range shards {
		o := run.Outcome{
			State: run.Succeeded, StartedAt: now, EndedAt: now, HTTPStatus: 200,
			Response: &run.Response{Endpoint: fmt.Sprint("e", i)},
		}
		var next *dispatcher.NextAttempt
		switch {
		case i == 5:
			o.State, o.HTTPStatus = run.WaitingCallback, 202
			next = &dispatcher.NextAttempt{At: now.Add(time.Hour), Callback: &run.Callback{Within: time.Hour}}
		case i >= 3:
			o.State, o.HTTPStatus, o.Class, o.Error = run.Failed, 500, run.ClassHTTP5xx, "the target responded with 500"
		}
		if err := f.store.Record(ctx, []dispatcher.Record{{
			Key: shard.Key, JobID: shard.JobID, Revision: shard.Revision, ClaimedAt: shard.ClaimedAt,
			Node: node.ID, Token: shard.Token, Attempt: shard.Attempt, Outcome: o, Next: next,
		}}); err != nil {
			return err
		}
	}
	half := 50
	_, err = f.store.ExtendRun(ctx, shards[5].String(), run.Heartbeat{
		Attempt: 1, Within: 2 * time.Hour, Progress: run.Progress{Text: "half of it", Percent: &half},
	}, input.Change{Actor: run.ActorCallback, Now: now})
	return err
}
