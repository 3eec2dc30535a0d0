package decode

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// A decoded body takes at most 20 times its size in memory, whatever it contains: a list of empty objects would take
// hundreds of times as much. It is refused before that.
func TestHostileBodiesTakeBoundedMemory(t *testing.T) {
	list := func(name, element string) string {
		return `{"format":1,"installation":"w","app":{"name":"evil"},"` + name + `":[` + element +
			strings.Repeat(","+element, (MaxBody+1000)/len(element)) + `]}`
	}
	for name, text := range map[string]string{
		"empty jobs":         list("jobs", `{}`),
		"jobs with a target": list("jobs", `{"job":{"target":{"webhook":{}}}}`),
		"empty alerts":       list("alerts", `{}`),
		"empty groups":       list("groups", `{}`),
		"empty calendars":    list("calendars", `{}`),
		"empty runs":         list("waiting_runs", `{}`),
		"runs with an input": list("waiting_runs", `{"input":{"cause":{}}}`),
		"maps of triggers":   list("jobs", `{"triggers":{"a":{}}}`),
	} {
		var export access.Export
		before := heap()
		problems := JSON(t.Context(), []byte(text), &export)
		if kept := heap() - before; kept > mostMemory(len(text)) {
			t.Errorf("%s: %d bytes decode to %d, which is %d times as much; want %d times at most", name, len(text), kept,
				kept/int64(len(text)), mostMemory(len(text))/int64(len(text)))
		}
		runtime.KeepAlive(export)
		if refused := len(problems) > 0; refused && problems[0].Code != input.CodePayloadTooLarge ||
			!refused && name != "runs with an input" { // these take less
			t.Errorf("%s: problems are %v, want that the body takes too much memory", name, problems)
		}
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// An app of ordinary jobs is far from the bound.
func TestOrdinaryImportFits(t *testing.T) {
	t.Parallel()
	job := `{"job":{"app":"a","name":"x","target":{"webhook":{"url":"http://e/"}},"triggers":{"t":{"expression":"rate(1m)"}}},"revision":1,` +
		`"paused":false,"triggers":{"t":{"paused":false,"state":"waiting","anchor_at":"2027-01-01T00:00:00Z"}}}`
	var export access.Export
	text := `{"format":1,"jobs":[` + job + strings.Repeat(","+job, 20_000) + `]}`
	if problems := JSON(t.Context(), []byte(text), &export); len(problems) > 0 || len(export.Jobs) != 20_001 {
		t.Errorf("%d bytes decode to %d jobs, with %v; want 20001 and no problem", len(text), len(export.Jobs), problems)
	}
}

// When the request of a body is over, its body is neither searched for duplicate keys nor decoded.
func TestDecodingEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, text := range map[string]string{
		"a list":         `{"format":1,"jobs":[{},{},{}]}`,
		"duplicate keys": `{"format":1,"format":1,"jobs":[{"a":1,"a":2}]}`,
		"a map":          `{"jobs":[{"triggers":{"a":{},"b":{}}}]}`,
		"no list":        `{"app":{"name":"a"}}`,
	} {
		var export access.Export
		problems := JSON(over, []byte(text), &export)
		if len(problems) != 1 || problems[0].Code != input.CodeRequestTimeout || len(export.Jobs) > 0 {
			t.Errorf("%s: %d jobs and problems %v, want no job and that the time was over", name, len(export.Jobs), problems)
		}
	}
}
