package schedule

import (
	"archive/zip"
	"bufio"
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// embeddedZones is the archive that "make zones" writes. Go's own data are as old as its release, and
// time.LoadLocation prefers the zone files of the host. Hosts may have different releases of them, and then nodes
// would disagree about fire times.
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

// own are the data of this process, and followed those of its installation, which take precedence; nil if there are
// none. Without either, a process computes with the built-in data.
var own, followed atomic.Pointer[Zones] //nolint:gochecknoglobals // one process computes with one release

// ZonesWarning is the age at which data cause a warning: the database has several releases a year.
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
	if z := own.Load(); z != nil {
		return z
	}
	return builtIn()
}

// Following reports whether this process computes with data from FollowZones.
func Following() bool { return followed.Load() != nil }

// FollowZones makes this process compute with z from now on, or with its own data if z is nil. Parsed schedules keep
// the data that they were parsed with; code that keeps them compares CurrentZones.
func FollowZones(z *Zones) { followed.Store(z) }

// BuiltInZones returns the data that the program was built with.
func BuiltInZones() *Zones { return builtIn() }

// OutdatedBy returns when the data reach the age of ZonesWarning.
func (z *Zones) OutdatedBy() time.Time { return z.released.Add(ZonesWarning) }

// UseZones makes z the own data of this process. Parsed schedules keep the data that they were parsed with.
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

// MostZones bounds the size of an archive of time zone data, in bytes, and an eighth of its unpacked size. In 2026
// these were 420 KB, and 1.2 MB unpacked.
const MostZones = 1 << 20

// OpenZones reads an archive from PackZones. It refuses an archive that lacks a zone of the built-in data, because
// triggers may use it.
func OpenZones(archive []byte) (*Zones, error) { return OpenZonesLike(archive, builtIn()) }

// OpenZonesLike is OpenZones for data that must have all zones of others.
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

// ReadZones reads an archive that was checked before: it may lack a zone that is newer than its release.
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

// offsetPattern matches the usual notations of a fixed offset: +02:00, UTC+2, GMT-0330.
var offsetPattern = regexp.MustCompile(`(?i)^(?:UTC|GMT|Z)?([+-])(\d{1,2})(?::?(\d{2}))?$`)

// zone returns the zone of an IANA name from the data in use; empty is UTC.
func zone(name string) (*timeZone, *input.Problem) { return CurrentZones().zone(name) }

// zone returns the zone of an IANA name; empty is UTC.
func (z *Zones) zone(name string) (*timeZone, *input.Problem) {
	if name == "" || name == "UTC" {
		return &timeZone{loc: time.UTC}, nil // UTC needs no table
	}
	if loaded, ok := z.loaded.Load(name); ok {
		return loaded.(*timeZone), nil
	}
	file, known := z.files[name]
	if !known {
		return nil, z.unknown(name)
	}
	loc, err := loadZone(file)
	if err != nil {
		return nil, problemf(input.CodeTZUnknown, "the rules of the zone cannot be loaded: %v", err)
	}
	loaded, _ := z.loaded.LoadOrStore(name, newTimeZone(loc))
	return loaded.(*timeZone), nil
}

// Location returns the zone of an IANA name from the data in use, and false if it does not exist.
func Location(name string) (*time.Location, bool) { return CurrentZones().Location(name) }

func loadZone(file *zip.File) (*time.Location, error) {
	content, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	data, err := io.ReadAll(io.LimitReader(content, MostZones)) // the archive may state a wrong size
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// unknown explains why a name is not valid, and suggests the name that was probably meant.
func (z *Zones) unknown(name string) *input.Problem {
	if m := offsetPattern.FindStringSubmatch(name); m != nil {
		// Etc/GMT zones count west as positive, as POSIX does, hence the reversed sign.
		sign, minutes := m[1], m[3]
		h, _ := strconv.Atoi(m[2]) // one or two digits by the pattern
		reversed := map[string]string{"+": "-", "-": "+"}[sign]
		switch {
		case h == 0 && strings.Trim(minutes, "0") == "":
			return problemf(input.CodeTZOffset, "an offset is not a zone; use UTC")
		case strings.Trim(minutes, "0") != "" || h > 14 || h > 12 && sign == "-":
			return problemf(input.CodeTZOffset, "an offset is not a zone; use the IANA name of a place, such as Asia/Kolkata")
		}
		return problemf(input.CodeTZOffset,
			"an offset is not a zone; use Etc/GMT%s%d (its sign is reversed), or the IANA name of a place to follow daylight saving",
			reversed, h)
	}
	folded := strings.ToLower(name)
	if folded == "local" || folded == "localtime" || folded == "system" {
		return problemf(input.CodeTZUnknown,
			"this zone depends on the host, so nodes would disagree; use an IANA name such as Europe/Berlin")
	}
	folded = strings.ReplaceAll(strings.TrimSpace(folded), " ", "_")
	if known, ok := z.byFold[folded]; ok {
		return problemf(input.CodeTZUnknown, "not an IANA zone; did you mean %s?", known)
	}
	for _, name := range z.Names() { // sorted, so that the suggestion is always the same
		if city := name[strings.LastIndexByte(name, '/')+1:]; strings.ToLower(city) == folded {
			return problemf(input.CodeTZUnknown, "not an IANA zone; did you mean %s?", name)
		}
	}
	return problemf(input.CodeTZUnknown, "not an IANA zone; use a name such as Europe/Berlin, or UTC")
}

// Files of a zoneinfo directory that name its release.
const (
	versionFile = "+VERSION"  // the name alone, as in IANA's Makefile and on macOS
	sourceFile  = "tzdata.zi" // the source of all zones; its first line is "# version 2026f"
)

// releasePattern matches the name of a release.
var releasePattern = regexp.MustCompile(`^\d{4}[a-z]{1,2}$`)

func parseRelease(text string) (string, error) {
	name := strings.TrimSpace(text)
	if !releasePattern.MatchString(name) {
		return "", fmt.Errorf("%.20q is not the name of a release, such as 2026f", name)
	}
	return name, nil
}

// ReleaseOf returns the release that a zoneinfo directory names, and when the file with the name was written.
func ReleaseOf(dir fs.FS) (release string, written time.Time, err error) {
	for _, name := range []string{sourceFile, versionFile} {
		file, err := dir.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", time.Time{}, err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return "", time.Time{}, err
		}
		first, err := bufio.NewReader(io.LimitReader(file, 100)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", time.Time{}, fmt.Errorf("%s: %w", name, err)
		}
		release, err = parseRelease(strings.TrimPrefix(first, "# version "))
		if err != nil {
			return "", time.Time{}, fmt.Errorf("%s: %w", name, err)
		}
		return release, info.ModTime(), nil
	}
	return "", time.Time{}, fmt.Errorf("there is neither %s nor %s, so the release is unknown", sourceFile, versionFile)
}

// PackZones makes an archive for OpenZones of a zoneinfo directory, such as /usr/share/zoneinfo. released is the day of
// the release; zero: when the directory was written. Equal directories and days make equal archives.
func PackZones(dir fs.FS, released time.Time) ([]byte, error) {
	release, written, err := ReleaseOf(dir)
	if err != nil {
		return nil, err
	}
	if released.IsZero() {
		released = written
	}
	zones, err := readZoneFiles(dir)
	if err != nil {
		return nil, err
	}
	if err := addLinks(dir, zones); err != nil {
		return nil, err
	}
	zones[versionFile] = []byte(release + "\n")
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		file, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: released.UTC().Truncate(time.Second)})
		if err != nil {
			return nil, err
		}
		if _, err := file.Write(zones[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

func readZoneFiles(dir fs.FS) (map[string][]byte, error) {
	zones := map[string][]byte{}
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "posix" || name == "right"): // copies of all zones, and copies with leap seconds
			return fs.SkipDir
		// These zones are settings of the host. Factory stands for an unset zone.
		case entry.IsDir(), name == "localtime", name == "posixrules", name == "Factory":
			return nil
		}
		if info, err := fs.Stat(dir, name); err != nil || !info.Mode().IsRegular() { // a link to a directory, or to nothing
			return nil //nolint:nilerr // OpenZones reports missing names
		}
		data, err := fs.ReadFile(dir, name)
		if err != nil || !bytes.HasPrefix(data, []byte("TZif")) {
			return err
		}
		const leaps = 28 // offset of the number of leap seconds, RFC 9636, section 3.1
		if len(data) < leaps+4 || binary.BigEndian.Uint32(data[leaps:]) != 0 {
			return fmt.Errorf("zone %s counts leap seconds; use the directory without \"right\"", name)
		}
		zones[name] = data
		return nil
	})
	return zones, err
}

// addLinks adds the names that are links in the source, because distributions move old names such as US/Pacific to a
// separate package.
func addLinks(dir fs.FS, zones map[string][]byte) error {
	source, err := fs.ReadFile(dir, sourceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(source)) {
		link := strings.Fields(line)
		if len(link) != 3 || link[0] != "L" || zones[link[2]] != nil {
			continue
		}
		if data := zones[link[1]]; data != nil {
			zones[link[2]] = data
		}
	}
	return nil
}
