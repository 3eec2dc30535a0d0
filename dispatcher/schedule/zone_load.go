package schedule

import (
	"archive/zip"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

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

// Location returns the zone of an IANA name from the data in use. It returns false if there is no such zone.
func Location(name string) (*time.Location, bool) { return CurrentZones().Location(name) }

func loadZone(file *zip.File) (*time.Location, error) {
	content, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	data, err := io.ReadAll(io.LimitReader(content, MostZones)) // whatever the archive says of its size
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// unknown explains why a name is not valid, and suggests the name that was probably meant.
func (z *Zones) unknown(name string) *input.Problem {
	if m := offsetPattern.FindStringSubmatch(name); m != nil {
		return offsetProblem(m[1], m[2], m[3])
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

// offsetProblem suggests a zone for a fixed offset. Etc/GMT zones count west as positive, as POSIX
// does, hence the reversed sign.
func offsetProblem(sign, hours, minutes string) *input.Problem {
	h, _ := strconv.Atoi(hours) // one or two digits by the pattern
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
