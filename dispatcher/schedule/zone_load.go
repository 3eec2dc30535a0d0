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

// zoneArchive is Go's lib/time/zoneinfo.zip, the IANA database. time.LoadLocation would
// rather read the zone files of the host, of which no two need be of one release, and then
// nodes would disagree about when to fire. "make zones" brings the archive up to date.
//
//go:embed zoneinfo.zip
var zoneArchive string

// zoneFiles is the archive's files by name. Names that only exist on some hosts (localtime,
// posixrules, right/...) are not among them.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(strings.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err != nil {
		panic(fmt.Sprintf("embedded time zones: %v", err)) // the build is broken
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, file := range archive.File {
		// Factory is what a host has whose zone nobody set.
		if !strings.HasSuffix(file.Name, "/") && file.Name != "Factory" {
			files[file.Name] = file
		}
	}
	return files
})

// zonesByFold maps the lower-case form of each zone's name to the name.
var zonesByFold = sync.OnceValue(func() map[string]string {
	byFold := map[string]string{}
	for name := range zoneFiles() {
		byFold[strings.ToLower(name)] = name
	}
	return byFold
})

// zones holds the zones loaded so far, by name, because each costs a read of the
// archive. There are no more of them than names.
var zones sync.Map //nolint:gochecknoglobals // immutable tables, no more than there are names

// offsetPattern matches what people write for a fixed offset: +02:00, UTC+2, GMT-0330.
var offsetPattern = regexp.MustCompile(`(?i)^(?:UTC|GMT|Z)?([+-])(\d{1,2})(?::?(\d{2}))?$`)

// zone returns the zone of an IANA name; empty is UTC.
func zone(name string) (*timeZone, *problem) {
	if name == "" || name == "UTC" {
		return &timeZone{loc: time.UTC}, nil // which has no table
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
		return nil, problemf(CodeTZUnknown, "its rules cannot be loaded: %v", err)
	}
	loaded, _ := zones.LoadOrStore(name, newTimeZone(loc))
	return loaded.(*timeZone), nil
}

// Location returns the zone of an IANA name by the embedded database; false: there is none.
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

// unknownZone says what is wrong with a name that is not in the database, and what may have
// been meant.
func unknownZone(name string) *problem {
	if m := offsetPattern.FindStringSubmatch(name); m != nil {
		return offsetProblem(m[1], m[2], m[3])
	}
	folded := strings.ToLower(name)
	if folded == "local" || folded == "localtime" || folded == "system" {
		return problemf(CodeTZUnknown, "it depends on the host, so nodes would disagree; use an IANA name such as Europe/Berlin")
	}
	folded = strings.ReplaceAll(strings.TrimSpace(folded), " ", "_")
	if known, ok := zonesByFold()[folded]; ok {
		return problemf(CodeTZUnknown, "not an IANA zone; did you mean %s?", known)
	}
	for _, name := range slices.Sorted(maps.Keys(zoneFiles())) { // so that of two the same is named each time
		if city := name[strings.LastIndexByte(name, '/')+1:]; strings.ToLower(city) == folded {
			return problemf(CodeTZUnknown, "not an IANA zone; did you mean %s?", name)
		}
	}
	return problemf(CodeTZUnknown, "not an IANA zone; use a name such as Europe/Berlin, or UTC")
}

// offsetProblem explains the way out for a fixed offset. Etc/GMT zones count west as
// positive, as POSIX does, hence the reversed sign.
func offsetProblem(sign, hours, minutes string) *problem {
	h, _ := strconv.Atoi(hours) // one or two digits by the pattern
	reversed := map[string]string{"+": "-", "-": "+"}[sign]
	switch {
	case h == 0 && strings.Trim(minutes, "0") == "":
		return problemf(CodeTZOffset, "an offset is not a zone; use UTC")
	case strings.Trim(minutes, "0") != "" || h > 14 || h > 12 && sign == "-":
		return problemf(CodeTZOffset, "an offset is not a zone; use the IANA name of a place, such as Asia/Kolkata")
	}
	return problemf(CodeTZOffset, "an offset is not a zone; use Etc/GMT%s%d (the sign is reversed there), or the IANA name of a place to follow daylight saving", reversed, h)
}

// ZonesVersion identifies the time zone database of this program: equal versions give equal
// instants, and nothing is said of different ones.
var ZonesVersion = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(zoneArchive))
	return hex.EncodeToString(sum[:6])
})
