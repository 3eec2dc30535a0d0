package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// The built binary uses a real engine's metrics: the lines and the registry must agree on names.
// The last line is the one that comes within the time of a test.
func TestServeWritesALastMetricLineWhenItDrains(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, nil)
			database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
			n := startNodeWith(t, database, newToken(t, database), []string{"CARILLON_EMF=production"}, "--log-format="+format,
				"--drain-timeout="+patience.String())
			must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "emf", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
			job := webhookJob("emf", "tick", r.URL, map[string]string{"tick": "* * * * * ?"})
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
			r.await(t, "two fires", func(all []arrival) bool { return len(all) >= 2 })
			n.terminate()
			// A test that takes longer than a minute has several lines.
			var succeeded, lateness float64
			for line := range strings.Lines(n.logs.String()) {
				if strings.Contains(line, `"_aws"`) {
					var values struct{ AttemptsSucceeded, Lateness float64 }
					if err := json.Unmarshal([]byte(line), &values); err != nil {
						t.Fatal(err)
					}
					succeeded += values.AttemptsSucceeded
					lateness = max(lateness, values.Lateness)
				}
			}
			if sent := len(r.all()); int(succeeded) != sent {
				t.Errorf("%v attempts succeeded by all lines together, want all %d that were sent", succeeded, sent)
			}
			if lateness <= 0 {
				t.Errorf("Lateness is %v ms, want more than 0", lateness)
			}
		})
	}
}
