package schedule

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// embeddedZones is the archive that "make zones" writes. Go's own data have the age of its release, and
// time.LoadLocation prefers the zone files of the host. Hosts may have different releases of them,
// and then nodes would disagree about fire times.
//
//go:embed zoneinfo.zip
var embeddedZones []byte

// builtIn returns the data that the program was built with.
var builtIn = sync.OnceValue(func() *Zones {
	z, err := openArchive(embeddedZones)
	if err != nil {
		panic(fmt.Sprintf("read the embedded time zone data: %v", err)) // the build is broken
	}
	return z
})

// own are the data of this process, and followed those of its installation, which come before them; nil: there are none. Without
// any, a process computes with those that it was built with.
var own, followed atomic.Pointer[Zones] //nolint:gochecknoglobals // one process computes with one release

// ZonesWarning is the age at which data are worth a look: the database has several releases a year.
const ZonesWarning = 120 * 24 * time.Hour

// Zones is one release of the IANA time zone database. It is safe for concurrent use.
type Zones struct {
	release  string
	released time.Time
	files    map[string]*zip.File
	byFold   map[string]string // names by their lower-case form
	// loaded caches the zones in use by name, because loading one reads the archive. The number of names bounds it.
	loaded sync.Map
}

// CurrentZones returns the data that this process computes with.
func CurrentZones() *Zones {
	if z := followed.Load(); z != nil {
		return z
	}
	return OwnZones()
}

// OwnZones returns the data that this process computes with unless it follows others.
func OwnZones() *Zones {
	if z := own.Load(); z != nil {
		return z
	}
	return builtIn()
}

// Following tells whether this process computes with data that FollowZones named.
func Following() bool { return followed.Load() != nil }

// FollowZones makes this process compute with z from now on, whatever its own data are; nil: with its own. Schedules that were
// parsed keep the data that they were parsed with: who keeps them compares CurrentZones.
func FollowZones(z *Zones) { followed.Store(z) }

// BuiltInZones returns the data that the program was built with.
func BuiltInZones() *Zones { return builtIn() }

// OutdatedBy returns when the data reach the age of ZonesWarning.
func (z *Zones) OutdatedBy() time.Time { return z.released.Add(ZonesWarning) }

// UseZones makes z the own data of this process. Schedules that were parsed keep the data that they were parsed with.
func UseZones(z *Zones) { own.Store(z) }

// ZonesVersion returns the release of the data in use, such as 2026f. Equal releases give equal
// instants; different releases may or may not.
func ZonesVersion() string { return CurrentZones().release }

// Release returns the name of the release, such as 2026f. Later releases have greater names.
func (z *Zones) Release() string { return z.release }

// Released returns the day of the release.
func (z *Zones) Released() time.Time { return z.released }

// Names returns the names of all zones, sorted.
func (z *Zones) Names() []string { return slices.Sorted(maps.Keys(z.files)) }

// Location returns the zone of an IANA name, and false if the release has no such zone.
func (z *Zones) Location(name string) (*time.Location, bool) {
	found, wrong := z.zone(name)
	if wrong != nil {
		return nil, false
	}
	return found.loc, true
}

// MostZones bounds what an archive of time zone data takes, in bytes; and eight times as much what is packed in it. Those of
// 2026 take 420 KB, and 1.2 MB.
const MostZones = 1 << 20

// OpenZones reads an archive that PackZones has made. It refuses one that lacks a zone which the program was
// built with, because triggers may use it.
func OpenZones(archive []byte) (*Zones, error) { return OpenZonesLike(archive, builtIn()) }

// OpenZonesLike is OpenZones for data that are to have all zones of others.
func OpenZonesLike(archive []byte, others *Zones) (*Zones, error) {
	z, err := ReadZones(archive)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range others.Names() {
		if z.files[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("release %s lacks %d zones that this program knows, such as %s; use a complete copy of the database",
			z.release, len(missing), missing[0])
	}
	return z, nil
}

// ReadZones reads an archive that was found complete before: it may lack a zone that is newer than its release.
func ReadZones(archive []byte) (*Zones, error) {
	z, err := openArchive(archive)
	if err != nil {
		return nil, err
	}
	size := uint64(0)
	for _, file := range z.files {
		size += file.UncompressedSize64
	}
	if len(archive) > MostZones || size > 8*MostZones {
		return nil, fmt.Errorf("release %s takes %d bytes, and %d unpacked; the most are %d and %d", z.release, len(archive), size,
			MostZones, 8*MostZones)
	}
	for name, file := range z.files {
		if _, err := loadZone(file); err != nil {
			return nil, fmt.Errorf("zone %s: %w", name, err)
		}
	}
	return z, nil
}

// BuiltInArchive returns the archive of BuiltInZones.
func BuiltInArchive() []byte { return bytes.Clone(embeddedZones) }

// openArchive reads the directory of an archive.
func openArchive(archive []byte) (*Zones, error) {
	read, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	version, err := fs.ReadFile(read, versionFile)
	if err != nil {
		return nil, fmt.Errorf("the archive has no file %s with the name of its release: %w", versionFile, err)
	}
	z := &Zones{files: make(map[string]*zip.File, len(read.File)), byFold: make(map[string]string, len(read.File))}
	if z.release, err = parseRelease(string(version)); err != nil {
		return nil, err
	}
	for _, file := range read.File {
		if file.Name == versionFile {
			z.released = file.Modified.UTC()
			continue
		}
		z.files[file.Name] = file
		z.byFold[strings.ToLower(file.Name)] = file.Name
	}
	return z, nil
}
