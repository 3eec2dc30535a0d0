package schedule

import (
	"archive/zip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// zoneArchive is Go's lib/time/zoneinfo.zip, the IANA database. time.LoadLocation prefers the
// zone files of the host. Hosts may have different releases of them, and then nodes would
// disagree about fire times. "make zones" updates the archive.
//
//go:embed zoneinfo.zip
var zoneArchive string

// zoneFiles returns the files of the archive by name. Names that exist only on some hosts
// (localtime, posixrules, right/...) are not among them.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(strings.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err != nil {
		panic(fmt.Sprintf("read the embedded time zones: %v", err)) // the build is broken
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, file := range archive.File {
		// Factory is the zone of a host on which nobody has set one.
		if !strings.HasSuffix(file.Name, "/") && file.Name != "Factory" {
			files[file.Name] = file
		}
	}
	return files
})

// zonesByFold maps the lower-case form of each zone name to the name.
var zonesByFold = sync.OnceValue(func() map[string]string {
	byFold := map[string]string{}
	for name := range zoneFiles() {
		byFold[strings.ToLower(name)] = name
	}
	return byFold
})

// zones caches the loaded zones by name, because loading one reads the archive. The number of
// names bounds it.
var zones sync.Map //nolint:gochecknoglobals // immutable tables, at most one per name

// offsetPattern matches the usual notations of a fixed offset: +02:00, UTC+2, GMT-0330.
var offsetPattern = regexp.MustCompile(`(?i)^(?:UTC|GMT|Z)?([+-])(\d{1,2})(?::?(\d{2}))?$`)

// zone returns the zone of an IANA name; empty is UTC.
func zone(name string) (*timeZone, *problem) {
	if name == "" || name == "UTC" {
		return &timeZone{loc: time.UTC}, nil // UTC needs no table
	}
	if loaded, ok := zones.Load(name); ok {
		return loaded.(*timeZone), nil
	}
	file, known := zoneFiles()[name]
	if !known {
		return nil, unknownZone(name)
	}
	loc, err := loadZone(file)
	if err != nil {
		return nil, problemf(CodeTZUnknown, "the rules of the zone cannot be loaded: %v", err)
	}
	loaded, _ := zones.LoadOrStore(name, newTimeZone(loc))
	return loaded.(*timeZone), nil
}

// Location returns the zone of an IANA name from the embedded database. It returns false if there
// is no such zone.
func Location(name string) (*time.Location, bool) {
	z, wrong := zone(name)
	if wrong != nil {
		return nil, false
	}
	return z.loc, true
}

func loadZone(file *zip.File) (*time.Location, error) {
	content, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	data, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// unknownZone explains why a name is not valid, and suggests the name that was probably meant.
func unknownZone(name string) *problem {
	if m := offsetPattern.FindStringSubmatch(name); m != nil {
		return offsetProblem(m[1], m[2], m[3])
	}
	folded := strings.ToLower(name)
	if folded == "local" || folded == "localtime" || folded == "system" {
		return problemf(CodeTZUnknown,
			"this zone depends on the host, so nodes would disagree; use an IANA name such as Europe/Berlin")
	}
	folded = strings.ReplaceAll(strings.TrimSpace(folded), " ", "_")
	if known, ok := zonesByFold()[folded]; ok {
		return problemf(CodeTZUnknown, "not an IANA zone; did you mean %s?", known)
	}
	for _, name := range slices.Sorted(maps.Keys(zoneFiles())) { // sorted, so that the suggestion is always the same
		if city := name[strings.LastIndexByte(name, '/')+1:]; strings.ToLower(city) == folded {
			return problemf(CodeTZUnknown, "not an IANA zone; did you mean %s?", name)
		}
	}
	return problemf(CodeTZUnknown, "not an IANA zone; use a name such as Europe/Berlin, or UTC")
}

// offsetProblem suggests a zone for a fixed offset. Etc/GMT zones count west as positive, as POSIX
// does, hence the reversed sign.
func offsetProblem(sign, hours, minutes string) *problem {
	h, _ := strconv.Atoi(hours) // one or two digits by the pattern
	reversed := map[string]string{"+": "-", "-": "+"}[sign]
	switch {
	case h == 0 && strings.Trim(minutes, "0") == "":
		return problemf(CodeTZOffset, "an offset is not a zone; use UTC")
	case strings.Trim(minutes, "0") != "" || h > 14 || h > 12 && sign == "-":
		return problemf(CodeTZOffset, "an offset is not a zone; use the IANA name of a place, such as Asia/Kolkata")
	}
	return problemf(CodeTZOffset,
		"an offset is not a zone; use Etc/GMT%s%d (its sign is reversed), or the IANA name of a place to follow daylight saving",
		reversed, h)
}

// ZonesVersion returns an identifier of the embedded time zone database. Equal versions give
// equal instants; different versions may or may not.
var ZonesVersion = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(zoneArchive))
	return hex.EncodeToString(sum[:6])
})
