package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// zoneSetting selects the setting without its data, which take half a megabyte. There is one row at most.
const zoneSetting = `SELECT release, sum, set_at, set_by FROM zone_data`

func scanZoneSetting(row db.Scanner) (z dispatcher.ZoneSetting, err error) {
	err = row.Scan(&z.Release, &z.Sum, db.OptionalColumn(&z.SetAt), &z.SetBy)
	return z, err
}

// ZoneSetting returns which time zone data all nodes compute with.
func (s *Store) ZoneSetting(ctx context.Context) (dispatcher.ZoneSetting, error) {
	setting, _, err := db.First(ctx, s.db.Read, scanZoneSetting, zoneSetting)
	return setting, err
}

// ZoneArchive returns the data of the setting with a sum.
func (s *Store) ZoneArchive(ctx context.Context, sum string) ([]byte, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	archive, found, err := db.First(ctx, s.db.Read, func(row db.Scanner) (archive []byte, err error) {
		return archive, row.Scan(&archive)
	}, `SELECT archive FROM zone_data WHERE sum = $1`, sum)
	if err == nil && !found {
		err = dispatcher.NotFound("time zone data", sum)
	}
	return archive, err
}

// SetZones makes all nodes compute with an archive, or each with its own data. The nodes find it in their next round.
func (s *Store) SetZones(ctx context.Context, release string, archive []byte, change input.Change) (
	set dispatcher.ZoneSetting, err error,
) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		before, _, err := db.First(ctx, t, scanZoneSetting, zoneSetting)
		if err != nil {
			return err
		}
		set = dispatcher.ZoneSetting{}
		if archive == nil {
			_, err = t.ExecContext(ctx, `DELETE FROM zone_data`)
		} else {
			sum, at := sha256.Sum256(archive), t.now
			set = dispatcher.ZoneSetting{Release: release, Sum: hex.EncodeToString(sum[:]), SetAt: &at, SetBy: change.Actor}
			// $1 sum, $2 release, $3 archive, $4 now, $5 actor
			const write = `INSERT INTO zone_data (one, sum, release, archive, set_at, set_by) VALUES (1, $1, $2, $3, $4, $5)
				ON CONFLICT (one) DO UPDATE SET sum = excluded.sum, release = excluded.release, archive = excluded.archive,
				set_at = excluded.set_at, set_by = excluded.set_by`
			_, err = t.ExecContext(ctx, write, set.Sum, release, archive, at.UnixMilli(), change.Actor)
		}
		if err != nil {
			return fmt.Errorf("write time zone data: %w", err)
		}
		action := map[bool]string{true: "use", false: "reset"}[archive != nil]
		return t.auditChange(ctx, auditEntry{action: action, subject: "zones", before: before, after: set})
	})
	return set, err
}

// NoteZones notes which release a node computes with. If it was another one, no release counts as that of all fire times any more, so
// that they are worked out again once all nodes compute with the same.
func (s *Store) NoteZones(ctx context.Context, id run.NodeID, release string) error {
	return s.change(ctx, input.Change{}, func(ctx context.Context, t *tx) error {
		// $1 node, $2 release
		const other = `SELECT 1 FROM nodes WHERE id = $1 AND zones <> $2`
		if _, differs, err := db.First(ctx, t, db.ScanInt, other, id, release); err != nil || !differs {
			return err
		}
		if _, err := t.ExecContext(ctx, `UPDATE installation SET zones = ''`); err != nil {
			return err
		}
		_, err := t.ExecContext(ctx, `UPDATE nodes SET zones = $2 WHERE id = $1`, id, release)
		return err
	})
}
