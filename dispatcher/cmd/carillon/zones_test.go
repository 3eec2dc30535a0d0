package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// newerZones writes a zoneinfo directory of a later release, where noon in Tokyo is noon in UTC.
func newerZones(t *testing.T) string {
	t.Helper()
	archive := must[*zip.ReadCloser](t)(zip.OpenReader(filepath.Join("..", "..", "schedule", "zoneinfo.zip")))
	defer archive.Close()
	dir := filepath.Join(t.TempDir(), "zoneinfo")
	if err := os.CopyFS(dir, archive); err != nil {
		t.Fatal(err)
	}
	utc := must[[]byte](t)(os.ReadFile(filepath.Join(dir, "UTC")))
	for name, content := range map[string][]byte{"+VERSION": []byte("2098b\n"), "Asia/Tokyo": utc} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestZoneinfoReplacesOlderData(t *testing.T) {
	t.Parallel()
	newer := newerZones(t)
	archive := filepath.Join(t.TempDir(), "zones.zip")
	packed := must[[]byte](t)(schedule.PackZones(os.DirFS(newer), time.Now()))
	if err := os.WriteFile(archive, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	older := newerZones(t)
	if err := os.WriteFile(filepath.Join(older, "+VERSION"), []byte("1999a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const ours, theirs = "T03:00:00.000Z", "T12:00:00.000Z"
	for name, tt := range map[string]struct{ path, want string }{
		"a newer directory":      {newer, theirs},
		"a newer archive":        {archive, theirs},
		"an older directory":     {older, ours},
		"the newest of several":  {older + "," + newer, theirs},
		"the program's own data": {filepath.Join("..", "..", "schedule", "zoneinfo.zip"), ours},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, how := range [][]string{{"--zoneinfo", tt.path}, nil} {
				args := append([]string{"schedule", "next", "--timezone", "Asia/Tokyo", "--count", "1", "0 12 * * *"}, how...)
				out, errs, code := carillon(t, []string{"CARILLON_ZONEINFO=" + tt.path}, args...)
				if code != 0 || !strings.Contains(out, tt.want) {
					t.Errorf("%v: exit %d, %s%s, want %s", args, code, out, errs, tt.want)
				}
			}
		})
	}
}

func TestZoneinfoThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	incomplete := newerZones(t)
	if err := os.Remove(filepath.Join(incomplete, "Cuba")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		t.TempDir():    "there is neither tzdata.zi nor +VERSION",
		"/nonexistent": "no such file or directory",
		"zones.go":     "not a valid zip file",
		incomplete:     "lacks 1 zones that this program knows, such as Cuba",
	} {
		_, errs, code := carillon(t, nil, "schedule", "next", "--zoneinfo", path, "@daily")
		if code != 2 || !strings.Contains(errs, "--zoneinfo (CARILLON_ZONEINFO): "+path) || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %s, want 2 and %s", path, code, errs, want)
		}
	}
}

func TestVersionNamesTheZones(t *testing.T) {
	t.Parallel()
	built := schedule.BuiltInZones()
	want := "carillon " + version + "\ntime zone data " + built.Release() + " of " + built.Released().Format(time.DateOnly) + "\n"
	if out, errs, code := carillon(t, nil, "version"); out != want || code != 0 {
		t.Errorf("exit %d, %q %s, want %q", code, out, errs, want)
	}
	if out, _, _ := carillon(t, nil, "version", "--zoneinfo", newerZones(t)); !strings.Contains(out, "time zone data 2098b of ") {
		t.Errorf("%q, want 2098b", out)
	}
}

func TestNodeNamesItsZones(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := pgtest.New(t)
	n := startNode(t, database, newToken(t, database), append(quick(), "--zoneinfo", newerZones(t))...)
	t.Cleanup(n.terminate)
	if got, err := n.Version(t.Context()); err != nil || got.Zones != "2098b" {
		t.Errorf("version %+v, %v, want zones 2098b", got, err)
	}
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
	const warning = "the node computes with time zone data 2098b, and this command with "
	if _, errs, code := carillon(t, env, "schedule", "next", "--app", "shop", "@daily"); code != 0 || !strings.Contains(errs, warning) {
		t.Errorf("schedule next: exit %d, %s, want %s", code, errs, warning)
	}
	metrics := n.get(t, "/metrics")
	for _, want := range []string{`zones="2098b"`, "carillon_zones_release_timestamp_seconds ", "carillon_zones_older_than_host 0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// Both nodes switch to the installation's data together, and back. An upgrade with newer data moves no fire.
func TestInstallationChoosesTheZonesOfAllNodes(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database, newer := pgtest.New(t), newerZones(t)
	secret := newToken(t, database)
	first := startNode(t, database, secret, quick()...)
	t.Cleanup(first.terminate)
	ctx, n := t.Context(), first
	must[access.App](t)(n.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression, trigger.Timezone = "0 12 * * *", "Asia/Tokyo"
	declared := dispatcher.Job{App: "shop", Name: "noon",
		JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"daily": trigger},
			Target: target.Target{Webhook: &target.Webhook{URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout}}}}
	must[dispatcher.Job](t)(n.PutJob(ctx, declared, client.Condition{}))
	fires := func(hour int) func() bool {
		return func() bool {
			return must[dispatcher.Job](t)(n.Job(ctx, "shop", "noon")).Triggers["daily"].NextFireTime.Hour() == hour
		}
	}
	uses := func(release string, nodes int) func() bool {
		return func() bool {
			status := must[dispatcher.ZoneStatus](t)(n.Zones(ctx))
			for _, one := range status.Nodes {
				if one.Zones != release {
					return false
				}
			}
			return len(status.Nodes) == nodes
		}
	}
	env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + secret}
	out, errs, code := carillon(t, env, "zones", "use", "--plan", newer)
	if code != 0 || !strings.Contains(out, "shop/noon/daily") || !strings.Contains(out, "WITH 2098b") {
		t.Fatalf("plan: exit %d, %s%s, want the trigger that moves", code, out, errs)
	}
	if got := must[dispatcher.ZoneStatus](t)(n.Zones(ctx)); got.Release != "" {
		t.Fatalf("a plan set %+v", got)
	}
	out, errs, code = carillon(t, env, "zones", "use", newer)
	if code != 0 || !strings.Contains(out, "2098b") || !strings.Contains(errs, "shop/noon/daily") {
		t.Fatalf("use: exit %d, %s%s", code, out, errs)
	}
	until(t, "the node uses the data of the installation", uses("2098b", 1))
	until(t, "the next fire has moved", fires(12))
	second := startNode(t, database, secret, quick()...) // with other data of its own
	t.Cleanup(second.terminate)
	until(t, "a node that starts uses them, too", uses("2098b", 2))
	if got := must[dispatcher.ServerVersion](t)(second.Version(ctx)); got.Zones != "2098b" {
		t.Errorf("version %+v, want the zones of the installation", got)
	}
	if out, errs, code := carillon(t, env, "zones", "reset"); code != 0 || !strings.Contains(out, "that of each node") {
		t.Fatalf("reset: exit %d, %s%s", code, out, errs)
	}
	until(t, "the nodes use their own data", uses(schedule.BuiltInZones().Release(), 2))
	until(t, "the next fire has moved back", fires(3))
	if _, errs, code := carillon(t, env, "zones", "use", "2026zz"); code != 2 || !strings.Contains(errs, "is neither a directory nor a file") {
		t.Errorf("a release that nobody has: exit %d, %s", code, errs)
	}
}

func TestTZDataReportListsTheTriggersThatMove(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "triggers.tsv")
	lines := "moves\t\t0 12 * * *\tAsia/Tokyo\n" +
		"hourly\t\t0 * * * *\tAsia/Tokyo\n" +
		"elsewhere\t\t0 12 * * *\tEurope/Berlin\n" +
		"ends\tquartz\t0 0 12 1 1 ? 2098\tAsia/Tokyo\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := carillon(t, nil, "schedule", "tzdata-report", "--file", file, "--to", newerZones(t))
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(rows) != 2 || !strings.HasPrefix(rows[1], "moves ") {
		t.Fatalf("exit %d, want the one trigger that moves:\n%s%s", code, out, errs)
	}
	if !strings.Contains(rows[0], "WITH "+schedule.BuiltInZones().Release()) || !strings.Contains(rows[0], "WITH 2098b") {
		t.Errorf("titles %q, want both releases", rows[0])
	}
	for _, want := range []string{"T03:00:00.000Z", "T12:00:00.000Z"} {
		if !strings.Contains(rows[1], want) {
			t.Errorf("row %q, want %s", rows[1], want)
		}
	}
	if _, errs, code := carillon(t, nil, "schedule", "tzdata-report", "--file", file, "--to", t.TempDir()); code != 2 ||
		!strings.Contains(errs, "--to: ") {
		t.Errorf("a directory without data: exit %d, %s", code, errs)
	}
}
