package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/limit"
)

func TestConnectionsOfTheAPIFollowTheLimitOfFiles(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flags          limitFlags
		files, workers int
		want           fileShares
	}{
		"plenty of files": {limitFlags{}, 1 << 20, 1024, fileShares{api: 512, address: 64, targets: 1<<20 - 576, workers: 1024}},
		"few files": {limitFlags{}, 256, 1024, fileShares{api: 64, address: 32, targets: 128, workers: 96,
			warning: "96 workers instead of 1024"}},
		"fewer workers": {limitFlags{}, 256, 90, fileShares{api: 64, address: 32, targets: 128, workers: 90}},
		"hardly any":    {limitFlags{}, 16, 1024, fileShares{api: 8, address: 4, targets: 16, workers: 12, warning: "raise the limit"}},
		"unknown":       {limitFlags{}, 0, 1024, fileShares{api: 512, address: 64, workers: 1024}},
		"a small API": {limitFlags{APIConnections: 16, APIAddressConnections: 64}, 1 << 20, 1024,
			fileShares{api: 16, address: 8, targets: 1<<20 - 80, workers: 1024}},
		"a large API, 1 proxy": {limitFlags{APIConnections: 5000, APIAddressConnections: 2000}, 1 << 20, 1024,
			fileShares{api: 5000, address: 2000, targets: 1<<20 - 5064, workers: 1024}},
	} {
		got := tt.flags.shares(tt.files, tt.workers)
		if !strings.Contains(got.warning, tt.want.warning) || (got.warning == "") != (tt.want.warning == "") {
			t.Errorf("%s: the warning is %q, want %q in it", name, got.warning, tt.want.warning)
		}
		if got.warning != "" {
			e := &examination{}
			e.warn("files", got.warning)
			if f := e.findings[0]; !strings.HasPrefix(f.Action, "raise the limit of open files") || strings.Contains(f.Detail, f.Action) {
				t.Errorf("%s: doctor finds %+v, want the action apart from the detail", name, f)
			}
		}
		if got.warning = tt.want.warning; got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestFilesThatTheWarningAsksForAreEnough(t *testing.T) {
	t.Parallel()
	for _, flags := range []limitFlags{{}, {APIConnections: 8}, {APIConnections: 5000}} {
		for workers := 1; workers < 10_000; workers += 7 {
			files := flags.filesFor(workers)
			if got := flags.shares(files, workers); got.warning != "" {
				t.Fatalf("with %d files for %d workers: %s", files, workers, got.warning)
			}
			if got := flags.shares(files-16, workers); got.workers == workers && files > 400 {
				t.Fatalf("%d workers are told to have %d files, and need fewer", workers, files)
			}
		}
	}
}

func TestServerReportsAboutTheNodeAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.NewLogLogger(serverLog{NewLogger(&out, "info", "text").Handler(), limit.NewLines(3, time.Minute)}, slog.LevelDebug)
	log.Print("http: TLS handshake error from 192.0.2.1:4711: EOF")
	for range 10 {
		log.Print("http: Accept error: accept tcp [::]:8080: accept4: too many open files; retrying in 5ms")
	}
	log.Print("http: panic serving 192.0.2.1:4711: oh")
	if text := out.String(); strings.Contains(text, "handshake") || strings.Count(text, "level=WARN") != 3 ||
		strings.Count(text, "level=ERROR") != 1 {
		t.Errorf("got %s, want three warnings, an error, and nothing of the handshake", text)
	}
}
