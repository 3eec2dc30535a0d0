package provider

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// text describes a comparison, for a zone's wall clock. Terraform wraps the lines of a message but
// those that begin with a space, which keeps the table together.
func (c comparison) text(zone *time.Location) string {
	var b strings.Builder
	for i, w := range windows {
		fmt.Fprintf(&b, "  %-13s  %s\n", w.name, c.counts[i].text())
	}
	all := slices.Concat(c.before, c.after)
	layout := "Mon 2006-01-02 15:04 -07:00"
	if slices.ContainsFunc(all, func(t time.Time) bool { return t.Second() != 0 || t.Nanosecond() != 0 }) {
		layout = "Mon 2006-01-02 15:04:05 -07:00"
	}
	column := func(due []time.Time, row int) string {
		switch {
		case row < len(due):
			return due[row].In(zone).Format(layout)
		case row == 0:
			return "no fire"
		}
		return ""
	}
	fmt.Fprintf(&b, "\n  %-*s  %s\n", len(layout), "before", "after")
	for row := range max(len(c.before), len(c.after), 1) {
		line := fmt.Sprintf("  %-*s  %s", len(layout), column(c.before, row), column(c.after, row))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// text is such as "1 added, 14 moved 1h later".
func (c windowCount) text() string {
	var parts []string
	if c.removed > 0 {
		parts = append(parts, fmt.Sprintf("%d removed", c.removed))
	}
	if c.added > 0 {
		parts = append(parts, fmt.Sprintf("%d added", c.added))
	}
	if c.moved > 0 {
		parts = append(parts, fmt.Sprintf("%d moved %s", c.moved, c.by()))
	}
	switch {
	case c.incomplete && len(parts) > 0:
		return "at least " + strings.Join(parts, ", ")
	case c.incomplete:
		return "too many fires to compare"
	case len(parts) == 0:
		return "no change"
	}
	return strings.Join(parts, ", ")
}

// by says how far fires move.
func (c windowCount) by() string {
	span := func(d time.Duration) string {
		if whole := d.Truncate(time.Second); whole > 0 {
			d = whole // jitter moves by milliseconds
		}
		return binding.FormatDuration(input.Duration(d))
	}
	switch {
	case c.least == c.most && c.least > 0:
		return span(c.least) + " later"
	case c.least == c.most:
		return span(-c.least) + " earlier"
	case c.least >= 0:
		return fmt.Sprintf("up to %s later", span(c.most))
	case c.most <= 0:
		return fmt.Sprintf("up to %s earlier", span(-c.least))
	}
	return fmt.Sprintf("between %s earlier and %s later", span(-c.least), span(c.most))
}
