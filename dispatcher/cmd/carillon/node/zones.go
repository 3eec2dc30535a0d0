package node

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// hostZoneinfo is where Debian, Red Hat, Alpine and macOS have their copy of the database.
const hostZoneinfo = "/usr/share/zoneinfo"

// newerOnHost returns the release of the host's data if they are newer than those in use, else "".
func newerOnHost(dir string) string {
	release, _, err := schedule.ReleaseOf(os.DirFS(dir))
	if err != nil || release <= schedule.CurrentZones().Release() {
		return "" // without data, as most images are, a host has nothing to say
	}
	return release
}

// DescribeZones returns the release in use and its day.
func DescribeZones() string {
	zones := schedule.CurrentZones()
	return fmt.Sprintf("time zone data %s of %s", zones.Release(), zones.Released().Format(time.DateOnly))
}

// zonesWarnings returns why the data in use may be too old. Those of the installation are renewed for all nodes together.
func zonesWarnings(now time.Time, host string) (all []string) {
	if schedule.Following() {
		if now.After(schedule.CurrentZones().OutdatedBy()) {
			all = append(all, fmt.Sprintf("%s, which the installation has for its nodes, are more than %d days old, so governments may have "+
				"changed rules since; run carillon zones use with a newer release", DescribeZones(), schedule.ZonesWarning/(24*time.Hour)))
		}
		return all
	}
	if newer := newerOnHost(host); newer != "" {
		all = append(all, fmt.Sprintf("%s are older than the host's %s; start with --zoneinfo %s, or upgrade", DescribeZones(), newer, host))
	}
	if now.After(schedule.CurrentZones().OutdatedBy()) {
		all = append(all, fmt.Sprintf("%s are more than %d days old, so governments may have changed rules since; upgrade, "+
			"or start with --zoneinfo and a newer release", DescribeZones(), schedule.ZonesWarning/(24*time.Hour)))
	}
	return all
}

// registerZones adds the metrics of time zone data.
func registerZones(metrics prometheus.Registerer) {
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_zones_release_timestamp_seconds", Help: "The day of the release of the time zone data in use, in Unix seconds.",
	}, func() float64 { return float64(schedule.CurrentZones().Released().Unix()) }), oneIf(func() bool { return newerOnHost(hostZoneinfo) != "" },
		"carillon_zones_older_than_host", "Whether the host has newer time zone data than the node uses: 1 or 0."))
}

// oneIf is a gauge that is 1 while something holds, and 0 otherwise.
func oneIf(holds func() bool, name, help string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if holds() {
			return 1
		}
		return 0
	})
}
