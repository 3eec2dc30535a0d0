package schedule

import (
	_ "embed"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for hosts and images without zone files
)

// zoneNames is every name of the IANA database, from Go's lib/time/zoneinfo.zip. Names that
// only exist on some hosts (localtime, posixrules, right/...) are not among them.
//
//go:embed zones.txt
var zoneNames string

// zonesByFold maps the lower-case form of each zone's name to the name.
var zonesByFold = sync.OnceValue(func() map[string]string {
	byFold := map[string]string{}
	for name := range strings.Lines(zoneNames) {
		name = strings.TrimSuffix(name, "\n")
		byFold[strings.ToLower(name)] = name
	}
	return byFold
})

// locations holds the zones loaded so far, by name, because each costs a file read. There
// are no more of them than names.
var locations sync.Map //nolint:gochecknoglobals // immutable tables, no more than there are names

// offsetPattern matches what people write for a fixed offset: +02:00, UTC+2, GMT-0330.
var offsetPattern = regexp.MustCompile(`(?i)^(?:UTC|GMT|Z)?([+-])(\d{1,2})(?::?(\d{2}))?$`)

// zone returns the location of an IANA name; empty is UTC.
func zone(name string) (*time.Location, *fault) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if loc, ok := locations.Load(name); ok {
		return loc.(*time.Location), nil
	}
	if known := zonesByFold()[strings.ToLower(name)]; known != name {
		return nil, unknownZone(name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, faultf(CodeTZUnknown, "its rules cannot be loaded: %v", err)
	}
	locations.Store(name, loc)
	return loc, nil
}

// unknownZone says what is wrong with a name that is not in the database, and what may have
// been meant.
func unknownZone(name string) *fault {
	if m := offsetPattern.FindStringSubmatch(name); m != nil {
		return offsetFault(m[1], m[2], m[3])
	}
	folded := strings.ToLower(name)
	if folded == "local" || folded == "localtime" || folded == "system" {
		return faultf(CodeTZUnknown, "it depends on the host, so nodes would disagree; use an IANA name such as Europe/Berlin")
	}
	folded = strings.ReplaceAll(strings.TrimSpace(folded), " ", "_")
	if known, ok := zonesByFold()[folded]; ok {
		return faultf(CodeTZUnknown, "not an IANA zone; did you mean %s?", known)
	}
	for name := range strings.Lines(zoneNames) {
		name = strings.TrimSuffix(name, "\n")
		if city := name[strings.LastIndexByte(name, '/')+1:]; strings.ToLower(city) == folded {
			return faultf(CodeTZUnknown, "not an IANA zone; did you mean %s?", name)
		}
	}
	return faultf(CodeTZUnknown, "not an IANA zone; use a name such as Europe/Berlin, or UTC")
}

// offsetFault explains the way out for a fixed offset. Etc/GMT zones count west as
// positive, as POSIX does, hence the reversed sign.
func offsetFault(sign, hours, minutes string) *fault {
	h, _ := strconv.Atoi(hours) // one or two digits by the pattern
	reversed := map[string]string{"+": "-", "-": "+"}[sign]
	switch {
	case h == 0 && strings.Trim(minutes, "0") == "":
		return faultf(CodeTZOffset, "an offset is not a zone; use UTC")
	case strings.Trim(minutes, "0") != "" || h > 14 || h > 12 && sign == "-":
		return faultf(CodeTZOffset, "an offset is not a zone; use the IANA name of a place, such as Asia/Kolkata")
	}
	return faultf(CodeTZOffset, "an offset is not a zone; use Etc/GMT%s%d (the sign is reversed there), or the IANA name of a place to follow daylight saving", reversed, h)
}
