package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// referenceZones have every kind of rule: both hemispheres, jumps of 20, 30, 60 and 120
// minutes and of a whole day, at midnight and at odd hours, negative daylight saving, rules
// that began, changed or ended between 2000 and 2040, and none at all.
var referenceZones = []string{
	"UTC", "Africa/Cairo", "Africa/Casablanca", "Africa/Johannesburg", "Africa/Tripoli", "Africa/Windhoek",
	"America/Argentina/Buenos_Aires", "America/Asuncion", "America/Bogota", "America/Caracas", "America/Chicago",
	"America/Godthab", "America/Havana", "America/Los_Angeles", "America/Mexico_City", "America/New_York",
	"America/Santiago", "America/Sao_Paulo", "America/St_Johns", "Antarctica/Casey", "Antarctica/Macquarie",
	"Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Gaza", "Asia/Jerusalem", "Asia/Kathmandu",
	"Asia/Kolkata", "Asia/Pyongyang", "Asia/Shanghai", "Asia/Tehran", "Atlantic/Azores", "Australia/Adelaide",
	"Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin", "Europe/Dublin", "Europe/Istanbul", "Europe/London",
	"Europe/Moscow", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Fiji", "Pacific/Kiritimati",
	"Pacific/Norfolk", "Pacific/Tongatapu",
}

// numbers is a cron field as text and as the set that it means, made without a parser.
type numbers struct {
	text string
	has  map[int]bool
}

// randomNumbers writes a field of low to high: a star, a step, a list or a range.
func randomNumbers(r *rand.Rand, low, high int) numbers {
	n := numbers{has: map[int]bool{}}
	pick := func() int { return low + r.IntN(high-low+1) }
	addRange := func(a, b, step int) {
		for v := a; v <= b; v += step {
			n.has[v] = true
		}
	}
	switch r.IntN(6) {
	case 0, 1:
		n.text = "*"
		addRange(low, high, 1)
	case 2:
		step := 1 + r.IntN(high/2+1)
		n.text = fmt.Sprintf("*/%d", step)
		addRange(low, high, step)
	case 3:
		a, b := pick(), pick()
		a, b = min(a, b), max(a, b)
		n.text = fmt.Sprintf("%d-%d", a, b)
		addRange(a, b, 1)
	default:
		var parts []string
		for range 1 + r.IntN(4) {
			v := pick()
			parts = append(parts, strconv.Itoa(v))
			n.has[v] = true
		}
		n.text = strings.Join(parts, ",")
	}
	return n
}

// wallClockSet is a random quartz expression and the local times it means.
type wallClockSet struct {
	text                             string
	second, minute, hour, month, dow numbers
}

// randomWallClock returns an expression dense enough to fire several times in a night.
func randomWallClock(r *rand.Rand) wallClockSet {
	w := wallClockSet{
		second: numbers{"0", map[int]bool{0: true}}, minute: randomNumbers(r, 0, 59), hour: randomNumbers(r, 0, 23),
		month: randomNumbers(r, 1, 12), dow: randomNumbers(r, 1, 7),
	}
	if r.IntN(3) == 0 {
		w.second = randomNumbers(r, 0, 59)
	}
	if r.IntN(3) > 0 {
		w.month, w.dow = randomAll(1, 12), randomAll(1, 7)
	}
	w.text = strings.Join([]string{w.second.text, w.minute.text, w.hour.text, "?", w.month.text, w.dow.text}, " ")
	return w
}

func randomAll(low, high int) numbers {
	n := numbers{"*", map[int]bool{}}
	for v := low; v <= high; v++ {
		n.has[v] = true
	}
	return n
}

// matches reports whether a local time, in seconds as if it were UTC, is in the set.
func (w *wallClockSet) matches(local int64) bool {
	if !w.second.has[int(local%60)] || !w.minute.has[int(local/60%60)] || !w.hour.has[int(local/3600%24)] {
		return false
	}
	day := time.Unix(local, 0).UTC()
	return w.month.has[int(day.Month())] && w.dow.has[int(day.Weekday())+1]
}

// reference walks every second from a to b, converts it to the zone and applies the rules
// literally.
func reference(w *wallClockSet, loc *time.Location, a, b int64, gap schedule.Gap, overlap schedule.Overlap) []int64 {
	offset := func(at int64) int64 {
		_, o := time.Unix(at, 0).In(loc).Zone()
		return int64(o)
	}
	passes := map[int64][]int64{}
	fires := map[int64]bool{}
	before := offset(a - 1)
	for at := a; at <= b; at++ {
		now := offset(at)
		if gap == schedule.GapNext {
			for skipped := at + before; skipped < at+now; skipped++ {
				fires[at] = fires[at] || w.matches(skipped)
			}
		}
		before = now
		if w.matches(at + now) {
			passes[at+now] = append(passes[at+now], at)
		}
	}
	if overlap == "" {
		overlap = schedule.OverlapLast
		if len(w.hour.has) == 24 {
			overlap = schedule.OverlapBoth
		}
	}
	for _, p := range passes {
		switch overlap {
		case schedule.OverlapFirst:
			p = p[:1]
		case schedule.OverlapLast:
			p = p[len(p)-1:]
		}
		for _, at := range p {
			fires[at] = true
		}
	}
	var out []int64
	for at, fire := range fires {
		if fire {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return out
}

// jump is a jump of a zone's local clock: its instant and its size, in seconds.
type jump struct{ at, size int64 }

// jumps lists the transitions of a zone, found by the zone's own bounds.
func jumps(loc *time.Location, from, to time.Time) []jump {
	var out []jump
	for at := from; ; {
		_, end := at.In(loc).ZoneBounds()
		if end.IsZero() || end.After(to) {
			return out
		}
		if !end.After(at) { // see timeZone.find
			at = at.AddDate(0, 0, 2)
			continue
		}
		_, before := end.Add(-time.Second).In(loc).Zone()
		_, after := end.In(loc).Zone()
		if size := int64(after - before); size != 0 {
			out = append(out, jump{end.Unix(), max(size, -size)})
		}
		at = end
	}
}

func TestNextAgreesWithWalkingEverySecondAroundEveryTransition(t *testing.T) {
	t.Parallel()
	every := 1
	if testing.Short() {
		every = 20
	}
	for i, name := range referenceZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc, known := schedule.Location(name) // the program's rules, because hosts have others
			if !known {
				t.Fatalf("no zone %s", name)
			}
			r := rand.New(rand.NewPCG(uint64(i), 2026))
			all := jumps(loc, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC))
			all = append(all, jump{time.Date(2027, 2, 28, 23, 59, 0, 0, time.UTC).Unix(), 0})
			for n, j := range all {
				if n%every == 0 {
					compareAround(t, r, loc, j)
				}
			}
		})
	}
}

// compareAround compares one random expression in the 45 minutes before and after a jump,
// from a random start. The walk is wider by the jump, so that it sees every pass.
func compareAround(t *testing.T, r *rand.Rand, loc *time.Location, j jump) {
	t.Helper()
	const near = 45 * 60
	w := randomWallClock(r)
	spec := schedule.Spec{
		Expression: w.text, Timezone: loc.String(),
		Gap:     []schedule.Gap{"", schedule.GapSkip, schedule.GapNext}[r.IntN(3)],
		Overlap: []schedule.Overlap{"", schedule.OverlapLast, schedule.OverlapFirst, schedule.OverlapBoth}[r.IntN(4)],
	}
	s, err := schedule.Parse(spec)
	if err != nil {
		t.Errorf("Parse(%+v): %v", spec, err)
		return
	}
	from := j.at - near - j.size + r.Int64N(near+j.size)
	to := j.at + near + j.size
	var want []int64
	for _, at := range reference(&w, loc, j.at-near-2*j.size, to+j.size, spec.Gap, spec.Overlap) {
		if at > from && at <= to {
			want = append(want, at)
		}
	}
	var got []int64
	for _, at := range timesBetween(s, time.Unix(from, 0), time.Unix(to, 0), 1<<20) {
		got = append(got, at.Unix())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q in %s, gap %q, overlap %q, from %s (-want +got):\n%.800s",
			w.text, loc, spec.Gap, spec.Overlap, time.Unix(from, 0).UTC().Format(time.RFC3339), diff)
	}
}
