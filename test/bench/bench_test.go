package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// TestMain makes this test binary the node process of a benchmark if its arguments say so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asNode {
		main()
		return
	}
	os.Exit(m.Run())
}

// brief returns options for a short run of a benchmark.
func brief(t *testing.T, database string, span time.Duration) (Options, func() []Result) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all []Result
	report := func(r Result) error {
		all = append(all, r)
		return nil
	}
	options := Options{Database: database, Time: span, Rounds: 1, Failing: 200, Instants: 500, Program: program, Report: report}
	return options, func() []Result { return all }
}

func TestThroughputIsMeasuredInTurnWithItsCeilings(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	for name, tt := range map[string]struct {
		database, kind string
		http           bool
	}{
		"fire":    {"sqlite:" + filepath.Join(t.TempDir(), "carillon.db"), "sqlite", false},
		"webhook": {pgtest.New(t), "postgresql", true},
	} {
		t.Run(name, func(t *testing.T) {
			options, results := brief(t, tt.database, 3*time.Second)
			options.Peer = `test -n "$BENCH_DATABASE" && echo noise && echo "{\"value\": $BENCH_SECONDS}"`
			if err := runBench(t.Context(), name, options); err != nil {
				t.Fatal(err)
			}
			r := results()[0]
			if len(results()) != 1 || r.Bench != name || r.Database != tt.kind || r.Unit != "fires/s" || r.Value <= 0 ||
				(r.CeilingHTTP != nil) != tt.http {
				t.Errorf("got %+v", results())
			}
			if ratio := r.Value / *r.Ceiling; ratio < *r.Ratio*0.99 || ratio > *r.Ratio*1.01 {
				t.Errorf("ratio %f, want %f", *r.Ratio, ratio)
			}
			if tt.http && *r.Ceiling >= min(*r.CeilingSQL, *r.CeilingHTTP) {
				t.Errorf("ceiling %f is not below both %f and %f", *r.Ceiling, *r.CeilingSQL, *r.CeilingHTTP)
			}
			if *r.PeerValue != 1 || *r.PeerRatio != r.Value {
				t.Errorf("peer %f and ratio %f, want 1 and %f", *r.PeerValue, *r.PeerRatio, r.Value)
			}
			if *r.Allocs <= 0 || *r.CPUPerMillion <= 0 || (r.WAL != nil) != (tt.kind == "postgresql") {
				t.Errorf("costs %+v", r)
			}
		})
	}
}

func TestRequestsAreNeverEarly(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	for name, database := range map[string]string{
		"lateness": "sqlite:" + filepath.Join(t.TempDir(), "carillon.db"), "burst": pgtest.New(t), "hang": pgtest.New(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options, results := brief(t, database, time.Second)
			if err := runBench(t.Context(), name, options); err != nil {
				t.Fatal(err)
			}
			if r := results()[0]; r.Value <= 0 || r.P99 == nil || *r.Early != 0 {
				t.Errorf("got %+v, want requests and none early", r)
			}
		})
	}
}

func TestManualRunsAreCountedInPolls(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	options, results := brief(t, pgtest.New(t), time.Second)
	if err := runBench(t.Context(), "manual", options); err != nil {
		t.Fatal(err)
	}
	// The node polls every five seconds, and the runs are requested over the same time.
	if r := results()[0]; r.Value < 1 || r.Value > 6 || *r.Max <= 0 {
		t.Errorf("%.0f polls during %d manual runs, want 1 to 6; the latest of them %.0f ms late", r.Value, manualRuns, *r.Max)
	}
}

// The end of every failure is notified next to the fires of another app, and every scheduled time
// of a backfill has a run although a node is killed in the middle of it.
func TestFailuresAndBackfillsAreMeasured(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	for _, name := range []string{"failures", "backfill"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options, results := brief(t, pgtest.New(t), time.Second)
			if err := runBench(t.Context(), name, options); err != nil {
				t.Fatal(err)
			}
			if r := results()[0]; r.Value <= 0 || *r.Missing != 0 || *r.P99Ratio <= 0 || r.Doubled != nil && *r.Doubled != 0 {
				t.Errorf("got %+v, want nothing missing and nothing doubled", r)
			}
		})
	}
}

func TestStoreIsMeasuredByBatchAndTriggers(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	options, results := brief(t, pgtest.New(t), time.Second)
	if err := runBench(t.Context(), "store", options); err != nil {
		t.Fatal(err)
	}
	sizes := map[[2]int]bool{}
	for _, r := range results() {
		sizes[[2]int{*r.Triggers, *r.Batch}] = true
		if r.Value <= 0 || *r.Ceiling <= 0 {
			t.Errorf("got %+v", r)
		}
		if *r.Triggers == 20_000 && *r.Batch == 500 && (*r.WAL <= 0 || *r.WALRatio <= 0 || *r.Disk <= 0 || *r.DiskRatio <= 0) {
			t.Errorf("got %+v, want what fires have written", r)
		}
	}
	if len(sizes) != len(results()) || len(sizes) < 4 {
		t.Errorf("measured %v", sizes)
	}
}

// Not parallel, because its nodes need the processors.
func TestNodesAreProcesses(t *testing.T) {
	need.Step(t, "scale")
	database := pgtest.New(t)
	options, results := brief(t, database, 5*time.Second)
	err := runIn(t.Context(), options, func(b *bench, ctx context.Context) error {
		if err := declare(ctx, b.database, idleJobs("fleet", fleetRate)); err != nil {
			return err
		}
		for _, f := range []fleet{{2, 2, fleetRate}, {4, 1, fleetRate}} {
			r, err := b.nodesOf(ctx, f, "fleet")
			if err == nil {
				r.Bench = "nodes"
				err = b.Report(r)
			}
			if err != nil {
				return err
			}
		}
		if err := b.silence(ctx, "fleet"); err != nil {
			return err
		}
		return b.scaleOf(ctx, 10_000, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"nodes", "nodes", "scale"} {
		if r := results()[i]; r.Bench != name || r.Value <= 0 || r.RSS == nil || *r.RSS <= 0 {
			t.Errorf("got %+v, want fires of %s", r, name)
		}
	}
	if r := results()[0]; *r.Nodes != 2 || *r.Lost > 0.5 || r.Uneven == nil {
		t.Errorf("two nodes: got %+v", r)
	}
	for _, r := range results()[:2] {
		if *r.Statements <= 0 || *r.Rows < 0.5 || *r.Connections < 4 {
			t.Errorf("%d nodes: got %f statements and %f rows a fire and %d connections, want some, 0.5 or more, and 4 or more",
				*r.Nodes, *r.Statements, *r.Rows, *r.Connections)
		}
	}
}

func TestHistoryIsRemovedDuringFires(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	for name, database := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "carillon.db"),
		"postgresql": pgtest.New(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options, results := brief(t, database, 5*time.Second)
			options.History = 10_000
			if err := runBench(t.Context(), "retention", options); err != nil {
				t.Fatal(err)
			}
			if len(results()) != 3 {
				t.Fatalf("got %+v, want three results", results())
			}
			for i, r := range results() {
				if *r.Early != 0 || r.P99 == nil || (r.P99Ratio == nil) != (i == 0) {
					t.Errorf("got %+v, want no request early, and a ratio to the first", r)
				}
			}
			if kept, one, all := results()[0].Value, results()[1].Value, results()[2].Value; kept != 0 || one+all <= 0 || one+all > 10_000 {
				t.Errorf("%.0f, %.0f and %.0f runs were removed, want none at first, and then some of 10000", kept, one, all)
			}
		})
	}
}

func TestBenchRemovesItsSchemasAndFiles(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	file := filepath.Join(t.TempDir(), "carillon.db")
	options, _ := brief(t, "sqlite:"+file, time.Second)
	if err := runBench(t.Context(), "fire", options); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}

	database := pgtest.New(t)
	options, _ = brief(t, database, time.Second)
	options.Peer = "echo none"
	if err := runBench(t.Context(), "fire", options); err == nil || !strings.Contains(err.Error(), "last line") {
		t.Errorf("a peer without a number: got %v", err)
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var schemas int
	const count = `SELECT count(*) FROM information_schema.schemata WHERE schema_name LIKE 'carillon_bench%'`
	if err := conn.QueryRow(t.Context(), count).Scan(&schemas); err != nil || schemas != 0 {
		t.Errorf("%d schemas left, %v", schemas, err)
	}
}

func TestResultsOmitFieldsThatDoNotApply(t *testing.T) {
	t.Parallel()
	r := Result{Bench: "store", Database: "postgresql", Value: 1, Unit: "fires/s", Ceiling: some(2.0), Ratio: some(0.5), Early: some(0)}
	var out strings.Builder
	if err := jsonReport(&out)(r); err != nil {
		t.Fatal(err)
	}
	const want = `{"bench":"store","database":"postgresql","value":1,"unit":"fires/s","ceiling":2,"ratio":0.5,"early":0}` + "\n"
	if out.String() != want || !json.Valid([]byte(out.String())) {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	out.Reset()
	if err := tableReport(&out)(r); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "ratio 0.50") || !strings.Contains(got, "early 0") || strings.Contains(got, "p99") {
		t.Errorf("got %s", got)
	}
}

func TestMediansAndRatiosAreTakenOverRounds(t *testing.T) {
	t.Parallel()
	own, bare := rates{1, 30, 4, 5}, rates{2, 30, 16, 10}
	if got := own.median(); got != 4.5 {
		t.Errorf("median of %v: got %f, want 4.5", own, got)
	}
	if got := own.over(bare).median(); got != 0.5 {
		t.Errorf("median ratio: got %f, want 0.5", got)
	}
	if got := own[:1].harmonic(bare[:1])[0]; got < 0.666 || got > 0.667 {
		t.Errorf("harmonic: got %f, want 2/3", got)
	}
}

func TestUnsignedJobsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	for _, unsigned := range []bool{false, true} {
		d := idleJobs("app", 1)
		d.unsigned = unsigned
		if got := d.job(0).Target.Webhook.Signing == nil; got != unsigned {
			t.Errorf("unsigned %v: without signatures is %v", unsigned, got)
		}
	}
}
