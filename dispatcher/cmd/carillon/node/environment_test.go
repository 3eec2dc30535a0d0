package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestEnvironmentProblemsAreLogged(t *testing.T) {
	t.Parallel()
	const ecs = "ECS_CONTAINER_METADATA_URI_V4"
	for name, tt := range map[string]struct {
		env   string
		drain time.Duration
		says  string
	}{
		"nothing":                          {"", 25 * time.Second, ""},
		"a time zone":                      {"TZ", 25 * time.Second, "TZ is ignored"},
		"a drain that ECS lets end":        {ecs, 115 * time.Second, ""},
		"a drain that ECS would not await": {ecs, 120 * time.Second, "ECS kills"},
		"a long drain elsewhere":           {"", time.Hour, ""},
	} {
		var log bytes.Buffer
		serve := &Flags{}
		serve.DrainTimeout = input.Duration(tt.drain)
		lookUp := func(name string) (string, bool) { return "x", name == tt.env }
		serve.warnOfEnvironment(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), lookUp)
		if got := log.String(); !strings.Contains(got, tt.says) || tt.says == "" && got != "" {
			t.Errorf("%s: the log is %q, want %q", name, got, tt.says)
		}
	}
}

func TestNodeNamesThatCannotBeShownAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a\x00", "a\nb", "\xff", "\x1b[2J", "a\u202e", strings.Repeat("n", 256)} {
		if err := checkNodeName(name); err == nil || !strings.Contains(err.Error(), "--node-name") {
			t.Errorf("%q: %v, want an error", name, err)
		}
	}
	for _, name := range []string{"", "node-1", "host.example.com", "Knoten Süd"} {
		if err := checkNodeName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
