package console

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// reader is who reads a page, and when: in a language, and with times in a zone.
type reader struct {
	now   time.Time
	zone  zone
	texts *texts
}

// zoneChoice is the zone in which a person wants to see times.
type zoneChoice string

const (
	zoneUTC     zoneChoice = "utc"
	zoneTrigger zoneChoice = "trigger"
	zoneBrowser zoneChoice = "browser"
)

func zoneChoices() []zoneChoice { return []zoneChoice{zoneUTC, zoneTrigger, zoneBrowser} }

// zoneOption is a choice as the settings offer it. Shown is the zone and its offset now; empty: it is not known on this page.
type zoneOption struct {
	Choice zoneChoice
	Shown  string
}

// zoneOptions returns all choices. trigger is the name of the zone of the trigger that the page is about; empty: it is about none.
func (r reader) zoneOptions(trigger string) []zoneOption {
	named := func(l *time.Location) string {
		if l == nil {
			return ""
		}
		return l.String() + " " + offset(r.now.In(l))
	}
	return []zoneOption{
		{zoneUTC, offset(r.now.UTC())}, {zoneTrigger, named(location(trigger))}, {zoneBrowser, named(r.zone.browser)},
	}
}

// zone is how a visit shows times.
type zone struct {
	choice zoneChoice
	// browser is the zone of the browser; nil: its script has not told.
	browser *time.Location
}

// readZone returns the zone for what was chosen, and the name of that of the browser.
func readZone(chosen, browser string) zone {
	z := zone{choice: zoneUTC, browser: location(browser)}
	switch choice := zoneChoice(chosen); {
	case choice == zoneTrigger, choice == zoneBrowser && z.browser != nil:
		z.choice = choice
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

// in returns t in the zone that was chosen. trigger is the name of the zone of the trigger that t belongs to; empty: it belongs to none.
func (z zone) in(t time.Time, trigger string) time.Time {
	switch z.choice {
	case zoneBrowser:
		return t.In(z.browser)
	case zoneTrigger:
		if of := location(trigger); of != nil {
			return t.In(of)
		}
	}
	return t.UTC()
}

// offset returns the offset of t from UTC, such as +02:00; UTC is Z.
func offset(t time.Time) string { return t.Format("Z07:00") }
