// Zones packs a zoneinfo directory into the archive of time zone data that Carillon is built with.
//
// It prints the release. It does not change an archive that has that release or a later one.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func main() {
	from := flag.String("from", "/usr/share/zoneinfo", "zoneinfo directory of the newest release")
	to := flag.String("to", "dispatcher/schedule/zoneinfo.zip", "archive to write")
	day := flag.String("released", "", "day of the release, such as 2026-10-27, from the NEWS of the database; needed to write")
	flag.Parse()
	if err := run(*from, *to, *day); err != nil {
		fmt.Fprintln(os.Stderr, "zones:", err)
		os.Exit(1)
	}
}

func run(from, to, day string) error {
	release, _, err := schedule.ReleaseOf(os.DirFS(from))
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if built := schedule.BuiltInZones().Release(); built >= release {
		fmt.Println(built)
		return nil
	}
	released, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return fmt.Errorf("-released: %w", err)
	}
	archive, err := schedule.PackZones(os.DirFS(from), released)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if _, err := schedule.OpenZones(archive); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	fmt.Println(release)
	return os.WriteFile(to, archive, 0o644) //nolint:gosec // a public file of the repository
}
