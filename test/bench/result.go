package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is the outcome of one benchmark. A field that does not apply is nil.
type Result struct {
	Bench    string  `json:"bench"`
	Database string  `json:"database"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	// The ceilings are in Unit, too. Ratio is Value to Ceiling.
	CeilingSQL  *float64 `json:"ceiling_sql,omitempty"`
	CeilingHTTP *float64 `json:"ceiling_http,omitempty"`
	Ceiling     *float64 `json:"ceiling,omitempty"`
	Ratio       *float64 `json:"ratio,omitempty"`
	// PeerValue is the output of the peer's command, and PeerRatio Value to it.
	PeerValue *float64 `json:"peer_value,omitempty"`
	PeerRatio *float64 `json:"peer_ratio,omitempty"`

	Nodes    *int `json:"nodes,omitempty"`
	Triggers *int `json:"triggers,omitempty"`
	Batch    *int `json:"batch,omitempty"`
	// Early is the number of requests that began before they were due.
	P50   *float64 `json:"p50_ms,omitempty"`
	P99   *float64 `json:"p99_ms,omitempty"`
	Max   *float64 `json:"max_ms,omitempty"`
	Early *int     `json:"early,omitempty"`
	// P99Ratio is the ratio of P99 to P99 with nothing to clean up, as the median over the rounds.
	P99Ratio *float64 `json:"p99_ratio,omitempty"`
	// Missing is the number of due requests that had not arrived a second after the end.
	Missing *int `json:"missing,omitempty"`
	// Doubled is the number of notifications of a known transition under another event id.
	Doubled *int `json:"doubled,omitempty"`
	// Last is when the last of a burst began, and Alone when the only fire of another app began.
	Last       *float64 `json:"last_ms,omitempty"`
	Alone      *float64 `json:"alone_ms,omitempty"`
	OutOfOrder *int     `json:"out_of_order,omitempty"`

	Statements *float64 `json:"statements_per_fire,omitempty"`
	// Rows is what PostgreSQL read from tables, with or without an index. The ratios are to one node.
	Rows            *float64 `json:"rows_read_per_fire,omitempty"`
	StatementsRatio *float64 `json:"statements_to_one_node_ratio,omitempty"`
	RowsRatio       *float64 `json:"rows_to_one_node_ratio,omitempty"`
	// Processes is the number of processes with nodes, and Connections that of all nodes' connections to PostgreSQL.
	Processes   *int     `json:"processes,omitempty"`
	Connections *int     `json:"connections,omitempty"`
	Lost        *float64 `json:"lost_claims_share,omitempty"`
	// Uneven is the largest deviation of a node's share from an even one, relative to that.
	Uneven *float64 `json:"uneven_share,omitempty"`
	// Recovery is the greatest lateness of a killed node's fires.
	Recovery *float64 `json:"recovery_ms,omitempty"`
	Poll     *float64 `json:"poll_ms,omitempty"`
	RSS      *float64 `json:"rss_mib,omitempty"`
	// CPU is the cores that the node used, and CPUPerMillion the seconds per million fires, with
	// the receiver's if it runs in the same process.
	CPU           *float64 `json:"cpu_cores,omitempty"`
	CPUPerMillion *float64 `json:"cpu_seconds_per_million,omitempty"`
	WAL           *float64 `json:"wal_bytes_per_fire,omitempty"`
	Disk          *float64 `json:"disk_bytes_per_fire,omitempty"`
	// WALRatio and DiskRatio are ratios to the earlier tables; see earlierWAL.
	WALRatio  *float64 `json:"wal_to_earlier_ratio,omitempty"`
	DiskRatio *float64 `json:"disk_to_earlier_ratio,omitempty"`
	Allocs    *float64 `json:"allocs_per_fire,omitempty"`

	Jobs *int `json:"jobs,omitempty"`
	// Bar is the limit for Value.
	Bar *float64 `json:"bar,omitempty"`
}

func some[T any](value T) *T { return &value }

// lateness fills in how late requests began.
func (r *Result) lateness(l latencies) {
	r.P50, r.P99, r.Max = some(l.at(0.5)), some(l.at(0.99)), some(l.at(1))
	r.Early = some(l.early())
}

// jsonReport writes each result as an object on a line.
func jsonReport(w io.Writer) func(Result) error {
	return func(r Result) error { return json.NewEncoder(w).Encode(r) }
}

// tableReport writes each result as a line of a table, as soon as it is known.
func tableReport(w io.Writer) func(Result) error {
	return func(r Result) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		digits := 0
		if r.Value < 100 {
			digits = 1
		}
		fmt.Fprintf(t, "%s\t%s\t%.*f %s", r.Bench, r.Database, digits, r.Value, r.Unit)
		for _, c := range []struct {
			name  string
			value *float64
		}{{"bare SQL", r.CeilingSQL}, {"bare HTTP", r.CeilingHTTP}, {"ceiling", r.Ceiling}, {"peer", r.PeerValue}} {
			if c.value != nil {
				fmt.Fprintf(t, "\t%s %.*f", c.name, digits, *c.value)
			}
		}
		if r.Ratio != nil {
			fmt.Fprintf(t, "\tratio %.2f", *r.Ratio)
		}
		if r.PeerRatio != nil {
			fmt.Fprintf(t, "\tpeer ratio %.2f", *r.PeerRatio)
		}
		fmt.Fprintln(t)
		if details := r.details(); len(details) > 0 {
			fmt.Fprintf(t, "  %s\n", strings.Join(details, ", "))
		}
		return t.Flush()
	}
}

// details returns the other fields, by their JSON names.
func (r Result) details() []string {
	var found []string
	count := func(name string, value *int) {
		if value != nil {
			found = append(found, fmt.Sprintf("%s %d", name, *value))
		}
	}
	number := func(name, format string, value *float64) {
		if value != nil {
			found = append(found, name+" "+fmt.Sprintf(format, *value))
		}
	}
	count("nodes", r.Nodes)
	count("processes", r.Processes)
	count("connections", r.Connections)
	count("triggers", r.Triggers)
	count("batch", r.Batch)
	number("p50_ms", "%.1f", r.P50)
	number("p99_ms", "%.1f", r.P99)
	number("max_ms", "%.1f", r.Max)
	number("p99_ratio", "%.2f", r.P99Ratio)
	count("early", r.Early)
	count("missing", r.Missing)
	count("doubled", r.Doubled)
	number("last_ms", "%.0f", r.Last)
	number("alone_ms", "%.0f", r.Alone)
	count("out_of_order", r.OutOfOrder)
	number("statements_per_fire", "%.4f", r.Statements)
	number("statements_to_one_node_ratio", "%.2f", r.StatementsRatio)
	number("rows_read_per_fire", "%.2f", r.Rows)
	number("rows_to_one_node_ratio", "%.2f", r.RowsRatio)
	number("lost_claims_share", "%.4f", r.Lost)
	number("uneven_share", "%.2f", r.Uneven)
	number("recovery_ms", "%.0f", r.Recovery)
	number("poll_ms", "%.1f", r.Poll)
	number("rss_mib", "%.0f", r.RSS)
	number("cpu_cores", "%.3f", r.CPU)
	number("cpu_seconds_per_million", "%.0f", r.CPUPerMillion)
	number("wal_bytes_per_fire", "%.0f", r.WAL)
	number("wal_to_earlier_ratio", "%.2f", r.WALRatio)
	number("disk_bytes_per_fire", "%.0f", r.Disk)
	number("disk_to_earlier_ratio", "%.2f", r.DiskRatio)
	number("allocs_per_fire", "%.0f", r.Allocs)
	count("jobs", r.Jobs)
	number("bar", "%.1f", r.Bar)
	return found
}

// latencies are how late requests began, sorted.
type latencies []time.Duration

// at returns a quantile in milliseconds, 0 without any.
func (l latencies) at(share float64) float64 {
	if len(l) == 0 {
		return 0
	}
	return float64(l[int(share*float64(len(l)-1))].Microseconds()) / 1000
}

func (l latencies) early() int {
	n := 0
	for n < len(l) && l[n] < 0 {
		n++
	}
	return n
}
