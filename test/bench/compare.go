package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// ceilings are the best rates of the machine. http is nil if the benchmark sends nothing.
type ceilings struct{ sql, http measure }

// compare measures fires in turn with the ceilings and the peer, if one is configured, and fills in r.
func (b *bench) compare(ctx context.Context, r *Result, fires measure, best ceilings) error {
	things := []measure{fires, best.sql}
	if best.http != nil {
		things = append(things, best.http)
	}
	if b.Peer != "" {
		things = append(things, b.peer)
	}
	all, err := b.inTurns(ctx, things...)
	if err != nil {
		return err
	}
	own, ceiling := all[0], all[1]
	r.Database, r.Unit, r.Value, r.CeilingSQL = b.kind, "fires/s", own.median(), some(ceiling.median())
	if best.http != nil {
		r.CeilingHTTP = some(all[2].median())
		ceiling = ceiling.harmonic(all[2])
	}
	r.Ceiling, r.Ratio = some(ceiling.median()), some(own.over(ceiling).median())
	if b.Peer != "" {
		peer := all[len(all)-1]
		r.PeerValue, r.PeerRatio = some(peer.median()), some(own.over(peer).median())
	}
	return nil
}

// peer runs the command of the peer, with its time and database in the environment.
func (b *bench) peer(ctx context.Context, span time.Duration) (float64, error) {
	command := exec.CommandContext(ctx, "sh", "-c", b.Peer)
	command.Env = append(os.Environ(), "BENCH_SECONDS="+strconv.Itoa(max(1, int(span.Seconds()))), "BENCH_DATABASE="+b.Database)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return 0, fmt.Errorf("peer command: %w", err)
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	last := lines[len(lines)-1]
	var object struct {
		Value float64 `json:"value"`
	}
	if json.Unmarshal(last, &object.Value) != nil && json.Unmarshal(last, &object) != nil || object.Value <= 0 {
		return 0, fmt.Errorf("peer command: the last line of its output is %q; it must be a number above 0, or an object with a value", last)
	}
	return object.Value, nil
}
