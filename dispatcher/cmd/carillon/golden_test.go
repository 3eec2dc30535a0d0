package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/need"
)

// TestOutputOfCommands -update writes the file.
var update = flag.Bool("update", false, "write testdata/output.txt from what the commands print")

// steady returns the patterns of texts that differ between runs of the test, with their replacements.
func steady() [][2]string {
	return [][2]string{
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?`, "INSTANT"}, {`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} [\d: ]+GMT`, "DATE"},
		{`\b1[0-9a-v]{12}\b`, "ACTION"},
		{`carillon-[a-z2-7]{26}`, "EXTERNAL"}, {`\b[a-z2-7]{26}\b`, "TOKEN"}, {`"phases":\{[^}]*\}`, `"phases":{}`},
		{`\d+ of 10737418240`, "SOME of 10737418240"}, {`http://127\.0\.0\.1:\d+`, "http://HOST"},
		{`\b127\.0\.0\.1:\d+`, "HOST"}, {`evt_[0-9a-z_]+`, "EVENT"}, {`\b[0-9a-v]{24}\b`, "RUN"}, {`\b[0-9a-f]{16}\b`, "NODE"},
		{`("trace_id": ?)"[0-9a-f]{32}"`, `$1"TRACE"`},
		{`-?\b\d+(\.\d+)?(ns|µs|ms|[smhd])\b`, "TIME"}, {`\b(dns|connect|first byte|last byte) TIME,? ?`, ""},
		{`  +`, "  "}, {`NODE  \S+  `, "NODE  HOSTNAME  "},
		{`(?m)^(endpoint \S+)  (down|suspect).*$`, "$1  up"}, // after three failed health checks, for which a slow test has time
	}
}

// The output for people and programs of each command that shows something, from a server with hostile texts.
func TestOutputOfCommands(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	s := newShop(t)
	var text strings.Builder
	for _, command := range []string{
		"job list shop", "job list --label team=payments,tier=one", "job list --label team=none", "job list --label team=",
		"job show shop/orders", "run list shop", "run list shop -o json", "run list shop -o jsonl",
		"run show {run}", "run watch {run}", "run watch {run} -o jsonl", "misfire list shop",
		"misfire list shop -o json", "misfire list shop -o jsonl", "explain shop/orders/nightly {at}", "verify shop",
		"calendar list shop", "calendar show shop/holidays", "calendar show shop/holidays -o json", "slot list shop/orders",
		"group list shop", "group show shop/workers", "group show shop/workers -o json", "group status shop/workers",
		"endpoint list shop/workers",
		"endpoint list shop/workers -o json", "endpoint drain shop/workers w-1", "endpoint list shop/workers",
		"endpoint resume shop/workers w-1", "endpoint drain shop/workers none", "job show shop/grouped", "group delete shop/workers",
		"group delete shop/idle",
		"alert list shop", "alert show shop/channel", "alert mute shop/channel --until 2099-01-01T00:00:00Z --reason quiet",
		"alert show shop/channel", "alert list shop -o json", "alert unmute shop/channel", "alert firing shop", "alert events shop",
		"alert acknowledge shop/channel orders", "alert mute shop/channel --until never", "alert show shop/none",
		"app show shop", "app list", "attention shop", "open shop/orders", "open {run}",
		"job delete shop/orders", "alert delete", "node list", "token show reader", "rollback show", "rollback show -o json", "run cancel {run}",
		"run show none", "job show shop/none", "job pause shop/orders --reason quiet", "job list shop -o table", "pause list shop",
		"job ls shop/orders", "job list shop/none", "job list shop --state none", "audit shop/orders",
		"job show shop/orders", "job resume shop/orders", "job pause shop",
		"bulk start shop pause_jobs --name orders --reason quiet --dry-run", "bulk start shop pause_jobs --name orders -o json --dry-run",
		"bulk start shop cancel_runs --state queued --job orders --reason old --yes --watch -o json",
		"bulk list shop", "bulk list shop -o jsonl",
		"bulk start shop pause_jobs --class http_5xx --yes", "bulk start shop pause_jobs", "bulk start shop cancel_runs --yes",
		"bulk show shop/{bulk}", "bulk show shop/none", "job strip shop/orders/nightly --past 2 --next 2",
		"job strip shop/orders/nightly --past 1 --next 1 -o json",
		"job strip shop/orders/nightly --past 0 --next 1 -o jsonl", "job strip shop/orders/none", "job strip shop/orders/nightly --past 999",
		"statistics shop", "statistics shop -o json", "statistics shop -o jsonl", "statistics none",
		"job rename shop/orders bills --trigger nightly=daily", "job rename shop/bills --trigger daily=nightly -o json",
		"run list shop/bills", "job rename shop/bills", "job rename shop/bills bills", "job rename shop/bills Bills",
	} {
		out, errs, code := s.commandWith("", strings.Fields(s.fill(command, 0))...)
		fmt.Fprintf(&text, "$ carillon %s\n%s%s", command, out, errs)
		if code != 0 {
			fmt.Fprintf(&text, "exit %d\n", code)
		}
		text.WriteString("\n")
	}
	got := text.String()
	for _, replace := range steady() {
		got = regexp.MustCompile(replace[0]).ReplaceAllString(got, replace[1])
	}
	file := filepath.Join("testdata", "output.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); err != nil || diff != "" {
		t.Errorf("%v; the output is not that of %s (-want +got); if it is meant, run go test -run TestOutputOfCommands -update:\n%s",
			err, file, diff)
	}
}
