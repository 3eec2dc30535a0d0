package kit

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Reader is who reads a page, and when: in a language, and with times in a zone.
type Reader struct {
	Now   time.Time
	Zone  Zone
	Texts *Texts
}

// ZoneChoice is the zone in which a person wants to see times.
type ZoneChoice string

// The zones that people can choose.
const (
	ZoneUTC     ZoneChoice = "utc"
	ZoneTrigger ZoneChoice = "trigger"
	ZoneBrowser ZoneChoice = "browser"
)

// ZoneChoices returns all of them, in the order of the settings.
func ZoneChoices() []ZoneChoice { return []ZoneChoice{ZoneUTC, ZoneTrigger, ZoneBrowser} }

// ZoneOption is a choice as the settings offer it. Shown is the zone and its offset now; empty: it is not known on this page.
type ZoneOption struct {
	Choice ZoneChoice
	Shown  string
}

// ZoneOptions returns all choices. trigger is the name of the zone of the trigger that the page is about; empty: it is about none.
func (r Reader) ZoneOptions(trigger string) []ZoneOption {
	named := func(l *time.Location) string {
		if l == nil {
			return ""
		}
		return l.String() + " " + offset(r.Now.In(l))
	}
	return []ZoneOption{
		{ZoneUTC, offset(r.Now.UTC())}, {ZoneTrigger, named(location(trigger))}, {ZoneBrowser, named(r.Zone.browser)},
	}
}

// Zone is how a visit shows times.
type Zone struct {
	Choice ZoneChoice
	// browser is the zone of the browser; nil: its script has not told.
	browser *time.Location
}

// ReadZone returns the zone for what was chosen, and the name of that of the browser.
func ReadZone(chosen, browser string) Zone {
	z := Zone{Choice: ZoneUTC, browser: location(browser)}
	switch choice := ZoneChoice(chosen); {
	case choice == ZoneTrigger, choice == ZoneBrowser && z.browser != nil:
		z.Choice = choice
	}
	return z
}

// location returns the zone of a name in the time zone data of the program; nil: there is none.
func location(name string) *time.Location {
	if name == "" {
		return nil
	}
	found, known := schedule.Location(name)
	if !known {
		return nil
	}
	return found
}

// In returns t in the zone that was chosen. trigger is the name of the zone of the trigger that t belongs to; empty: it belongs to none.
func (z Zone) In(t time.Time, trigger string) time.Time {
	switch z.Choice {
	case ZoneBrowser:
		return t.In(z.browser)
	case ZoneTrigger:
		if of := location(trigger); of != nil {
			return t.In(of)
		}
	}
	return t.UTC()
}

// offset returns the offset of t from UTC, such as +02:00; UTC is Z.
func offset(t time.Time) string { return t.Format("Z07:00") }
