package console

import (
	"errors"
	"html"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// words returns the segments of a link.
func words(segments []any) []string {
	all := make([]string, len(segments))
	for i, segment := range segments {
		all[i] = textOf(segment)
	}
	return all
}

var errPairs = errors.New("names and values are not in pairs")

// addQuery adds parameters to a URL. Empty values add nothing.
func addQuery(to string, pairs ...any) (string, error) {
	if len(pairs)%2 != 0 {
		return "", errPairs
	}
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if value := textOf(pairs[i+1]); value != "" {
			q.Add(textOf(pairs[i]), value)
		}
	}
	if len(q) == 0 {
		return to, nil
	}
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return to + separator + encoded(q), nil
}

// encoded returns a query with the colons of its times as they are, which is legible, and shorter on pages with many of them.
func encoded(q url.Values) string { return strings.ReplaceAll(q.Encode(), "%3A", ":") }

// dict returns a map of names and values, for partials.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errPairs
	}
	of := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		of[textOf(pairs[i])] = pairs[i+1]
	}
	return of, nil
}

// instant returns a time that a template gives; false: there is none.
func instant(at any) (time.Time, bool) {
	switch t := at.(type) {
	case time.Time:
		return t, !t.IsZero()
	case *time.Time:
		if t != nil {
			return *t, !t.IsZero()
		}
	}
	return time.Time{}, false
}

// none stands for a value that there is not.
const none template.HTML = `<span class="none">–</span>`

// timeHTML returns a time in the zone that was chosen, always with its offset.
func (r reader) timeHTML(at any, trigger ...string) template.HTML {
	t, is := instant(at)
	if !is {
		return none
	}
	shown := r.zone.in(t, strings.Join(trigger, ""))
	form := "2006-01-02 15:04:05"
	if t.Nanosecond() != 0 {
		form += ".000"
	}
	return markup(`<time datetime="`, input.FormatInstant(t), `">`, shown.Format(form), `<span class="offset"> `, offset(shown),
		`</span></time>`)
}

// agoHTML returns how long ago a time was, or how soon it is, with the time itself as a tip.
func (r reader) agoHTML(at any) template.HTML {
	t, is := instant(at)
	if !is {
		return none
	}
	shown := r.zone.in(t, "")
	key, d := "time.ago", r.now.Sub(t)
	if d < 0 {
		key, d = "time.in", -d
	}
	return markup(`<time datetime="`, input.FormatInstant(t), `" title="`, shown.Format("2006-01-02 15:04:05 ")+offset(shown), `">`,
		r.texts.text(key, "duration", r.texts.rough(d)), `</time>`)
}

// markup joins parts, of which every second one is text and is escaped.
func markup(parts ...string) template.HTML {
	var b strings.Builder
	for i, part := range parts {
		if i%2 == 1 {
			part = html.EscapeString(part)
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// lengthOf returns a length of time that a template gives; false: there is none.
func lengthOf(d any) (time.Duration, bool) {
	switch d := d.(type) {
	case time.Duration:
		return d, true
	case input.Duration:
		return d.Std(), true
	case *time.Duration:
		if d != nil {
			return *d, true
		}
	case *input.Duration:
		if d != nil {
			return d.Std(), true
		}
	}
	return 0, false
}

// duration writes a length of time with its two largest units.
func (t *texts) duration(of any) string {
	d, is := lengthOf(of)
	if !is {
		return "–"
	}
	sign := ""
	if d < 0 {
		sign, d = "−", -d
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	switch {
	case d < time.Second:
		return sign + t.text("unit.ms", "n", number(d.Milliseconds()))
	case d.Round(100*time.Millisecond) < time.Minute:
		return sign + t.text("unit.s", "n", strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64))
	}
	d = d.Round(time.Second)
	units := []struct {
		key string
		of  time.Duration
	}{{"unit.d", 24 * time.Hour}, {"unit.h", time.Hour}, {"unit.min", time.Minute}, {"unit.s", time.Second}}
	var parts []string
	for _, unit := range units {
		if n := d / unit.of; n > 0 {
			parts, d = append(parts, t.text(unit.key, "n", number(int64(n)))), d%unit.of
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	return sign + strings.Join(parts, " ")
}

// rough writes a length of time with its largest unit.
func (t *texts) rough(d time.Duration) string {
	if d < time.Second {
		return t.text("unit.s", "n", "0")
	}
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if d >= unit {
			return t.duration(d.Truncate(unit))
		}
	}
	return ""
}

// namedHTML shows a value of the API by its word, and the value itself, which people declare in Terraform and search for.
func (r reader) namedHTML(prefix, value string) template.HTML {
	word := r.texts.word(prefix, value)
	switch {
	case value == "":
		return none
	case word == value:
		return markup(`<code>`, value, `</code>`)
	}
	return markup(``, word, ` <code>`, value, `</code>`)
}

// icon returns one of the drawings of the layout.
func icon(name string) template.HTML {
	return markup(`<svg class="icon" aria-hidden="true" focusable="false"><use href="#icon-`, name, `"></use></svg>`)
}
