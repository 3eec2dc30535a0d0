package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // as the product has it

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// oracle finds the fires of a schedule by trying every second.
type oracle struct {
	fires func(at time.Time) bool // nil: at one instant only, or after the ends of its runs
	once  time.Time
	delay time.Duration // after the end of a run
}

// newOracle reads the forms of schedules that chaos runs declare: rate, delay, at, and cron of
// six fields whose last three are * or ?.
func newOracle(t history.Trigger) (oracle, error) {
	name, argument, _ := strings.Cut(strings.TrimSuffix(t.Expression, ")"), "(")
	switch name {
	case "rate", "delay":
		period, err := time.ParseDuration(argument)
		if err != nil || name == "delay" {
			return oracle{delay: period}, err
		}
		return oracle{fires: func(at time.Time) bool {
			return !at.Before(t.StartAt) && at.Sub(t.StartAt)%period == 0
		}}, nil
	case "at":
		at, err := time.Parse(time.RFC3339Nano, argument)
		return oracle{once: at}, err
	}
	fields := strings.Fields(t.Expression)
	if len(fields) != 6 || strings.Trim(strings.Join(fields[3:], ""), "*?") != "" {
		return oracle{}, fmt.Errorf("the checker does not know the form of schedule %q", t.Expression)
	}
	zone, err := time.LoadLocation(t.Timezone)
	if err != nil {
		return oracle{}, err
	}
	var matches [3]map[int]bool
	for i, most := range []int{60, 60, 24} {
		if matches[i], err = field(fields[i], most); err != nil {
			return oracle{}, fmt.Errorf("schedule %q: %w", t.Expression, err)
		}
	}
	return oracle{fires: func(at time.Time) bool {
		local := at.In(zone)
		return matches[0][local.Second()] && matches[1][local.Minute()] && matches[2][local.Hour()]
	}}, nil
}

// field returns the numbers below most that a field of cron names: *, */n, a/n and a,b,c.
func field(text string, most int) (map[int]bool, error) {
	named := map[int]bool{}
	for item := range strings.SplitSeq(text, ",") {
		from, step, stepped := strings.Cut(item, "/")
		first, err := strconv.Atoi(strings.ReplaceAll(from, "*", "0"))
		if err != nil {
			return nil, err
		}
		last, by := first, 1
		if stepped || from == "*" {
			last = most - 1
		}
		if stepped {
			if by, err = strconv.Atoi(step); err != nil {
				return nil, err
			}
		}
		for n := first; n <= last; n += by {
			named[n] = true
		}
	}
	return named, nil
}

// instants returns the fires after one instant and until another.
func (o oracle) instants(after, until int64) []int64 {
	if o.fires == nil {
		if at := o.once.UnixMilli(); !o.once.IsZero() && at > after && at <= until {
			return []int64{at}
		}
		return nil
	}
	var all []int64
	for second := after/1000 + 1; second*1000 <= until; second++ {
		if o.fires(time.Unix(second, 0).UTC()) {
			all = append(all, second*1000)
		}
	}
	return all
}
