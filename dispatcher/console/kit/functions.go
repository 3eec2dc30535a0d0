package kit

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
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Words returns the segments of a link.
func Words(segments []any) []string {
	all := make([]string, len(segments))
	for i, segment := range segments {
		all[i] = TextOf(segment)
	}
	return all
}

var errPairs = errors.New("names and values are not in pairs")

// AddQuery adds parameters to a URL. Empty values add nothing.
func AddQuery(to string, pairs ...any) (string, error) {
	if len(pairs)%2 != 0 {
		return "", errPairs
	}
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if value := TextOf(pairs[i+1]); value != "" {
			q.Add(TextOf(pairs[i]), value)
		}
	}
	if len(q) == 0 {
		return to, nil
	}
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return to + separator + Encoded(q), nil
}

// Encoded returns a query without escapes for the colons of its times, which is legible and shorter.
func Encoded(q url.Values) string { return strings.ReplaceAll(q.Encode(), "%3A", ":") }

// Dict returns a map of names and values, for partials.
func Dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errPairs
	}
	of := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		of[TextOf(pairs[i])] = pairs[i+1]
	}
	return of, nil
}

// instant returns a time from a template; false: there is none.
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

// None stands for a missing value.
const None template.HTML = `<span class="none">–</span>`

// TimeHTML returns a time in the chosen zone, always with its offset.
func (r Reader) TimeHTML(at any, trigger ...string) template.HTML {
	t, is := instant(at)
	if !is {
		return None
	}
	shown := r.Zone.In(t, strings.Join(trigger, ""))
	form := "2006-01-02 15:04:05"
	if t.Nanosecond() != 0 {
		form += ".000"
	}
	return Markup(`<time datetime="`, input.FormatInstant(t), `">`, shown.Format(form), `<span class="offset"> `, offset(shown),
		`</span></time>`)
}

// AgoHTML returns how long ago a time was, or how soon it is, with the time itself as a tip.
func (r Reader) AgoHTML(at any) template.HTML {
	t, is := instant(at)
	if !is {
		return None
	}
	shown := r.Zone.In(t, "")
	key, d := "time.ago", r.Now.Sub(t)
	if d < 0 {
		key, d = "time.in", -d
	}
	return Markup(`<time datetime="`, input.FormatInstant(t), `" title="`, shown.Format("2006-01-02 15:04:05 ")+offset(shown), `">`,
		r.Texts.Text(key, "duration", r.Texts.rough(d)), `</time>`)
}

// WhyOfNode returns why a node needs attention and what to do about it, the worst first.
func (r Reader) WhyOfNode(n view.NodeAttention) string {
	at := ""
	if n.CertificateEndsAt != nil {
		ends := r.Zone.In(*n.CertificateEndsAt, "")
		at = ends.Format("2006-01-02 15:04:05 ") + offset(ends)
	}
	sentences := make([]string, len(n.Reasons))
	for i, reason := range n.Reasons {
		sentences[i] = r.Texts.Text("attention.node."+string(reason), "silent", r.Texts.Duration(n.SilentFor), "lag", r.Texts.Duration(n.Lag),
			"clock", r.Texts.Duration(n.ClockOffset), "at", at, "zones", n.Zones)
	}
	return strings.Join(sentences, " ")
}

// Markup joins parts. Every second one is text and is escaped.
func Markup(parts ...string) template.HTML {
	var b strings.Builder
	for i, part := range parts {
		if i%2 == 1 {
			part = html.EscapeString(part)
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// lengthOf returns a length of time from a template; false: there is none.
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

// Duration writes a length of time with its two largest units.
func (t *Texts) Duration(of any) string {
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
		return sign + t.Text("unit.ms", "n", number(d.Milliseconds()))
	case d.Round(100*time.Millisecond) < time.Minute:
		return sign + t.Text("unit.s", "n", strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64))
	}
	d = d.Round(time.Second)
	units := []struct {
		key string
		of  time.Duration
	}{{"unit.d", 24 * time.Hour}, {"unit.h", time.Hour}, {"unit.min", time.Minute}, {"unit.s", time.Second}}
	var parts []string
	for _, unit := range units {
		if n := d / unit.of; n > 0 {
			parts, d = append(parts, t.Text(unit.key, "n", number(int64(n)))), d%unit.of
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	return sign + strings.Join(parts, " ")
}

// Bytes writes a number of bytes with the largest unit of which there is one.
func Bytes(n int64) string {
	units, value := []string{"B", "KiB", "MiB", "GiB", "TiB"}, float64(n)
	for value >= 1024 && len(units) > 1 {
		units, value = units[1:], value/1024
	}
	return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) + "\u00a0" + units[0]
}

// rough writes a length of time with its largest unit.
func (t *Texts) rough(d time.Duration) string {
	if d < time.Second {
		return t.Text("unit.s", "n", "0")
	}
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if d >= unit {
			return t.Duration(d.Truncate(unit))
		}
	}
	return ""
}

// NamedHTML shows a value of the API by its word, and the value itself, which people declare and search for.
func (r Reader) NamedHTML(prefix, value string) template.HTML {
	word := r.Texts.Word(prefix, value)
	switch {
	case value == "":
		return None
	case word == value:
		return Markup(`<code>`, value, `</code>`)
	}
	return Markup(``, word, ` <code>`, value, `</code>`)
}

// Icon returns one of the drawings of the layout.
func Icon(name string) template.HTML {
	return Markup(`<svg class="icon" aria-hidden="true" focusable="false"><use href="#icon-`, name, `"></use></svg>`)
}

// Tone returns the look of a state: each has a colour and a shape, and the badge also has the word.
func Tone(state string) string {
	switch state {
	case "succeeded", "active", "up", "complete", "enabled", "ok", "run", "fire_once", "fire_all", "closed", "met", "valid":
		return "good"
	case "failed", "timed_out", "lost", "error", "dead", "down", "firing", "refused", "open", "breached", "quarantined", "expired",
		"missing", "blocked":
		return "bad"
	case "retrying", "late", "misfire", "suspect", "overdue", "at_risk", "saturated", "silent", "clock", "certificate",
		"zones", "old_zones", "rollback", "missed", "half_open":
		return "warn"
	case "running", "claimed", "queued", "waiting_callback", "waiting_shards", "draining", "cancelling", "pending", "live":
		return "busy"
	case "paused", "muted", "suspended", "disabled":
		return "halt"
	case "skipped", "skip", "cancelled", "superseded", "excluded", "none", "stopped":
		return "off"
	}
	return "idle" // planned, waiting, init, executing, which is no result yet, and values without a tone of their own
}

// Badge shows a state by word, shape and colour.
func (r Reader) Badge(state string) template.HTML {
	name := strings.ToLower(state)
	if name == "" {
		return None
	}
	word := name
	if key := "state." + name; r.Texts.Has(key) {
		word = r.Texts.Text(key)
	}
	return Markup(`<span class="badge badge-`, Tone(name), `" data-state="`, name, `">`, word, `</span>`)
}
