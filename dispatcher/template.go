package dispatcher

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// template is a checked text in which actions between {{ and }} stand for what is known of a call.
//
// Its language is a small part of that of Go's text/template, whose parser reads it. What it says is
// worked out here and not there: from a closed list of fields and functions, so that it can reach
// nothing else, without loops and names, and with each function at most once in an action. So
// what it takes is in proportion to its own length and that of what comes of it, which is bounded.
type template struct {
	parts []part
	// fires tells that it uses PreviousFire or NextFire, payload that it uses Payload.
	fires, payload bool
}

// part is one of the three: a text as it is, a value, or a choice.
type part struct {
	text            string
	value           *expression
	when            field
	then, otherwise []part
}

// expression is a value and what is made of it, in this order.
type expression struct {
	field   field
	literal string         // if field is none
	layout  string         // of date; empty: none
	zone    *time.Location // of date
	json    bool
	escaped bool // by urlquery
}

// field is what an action can name.
type field string

// The fields. Each of them is the same on every attempt of a run, but for the attempt's number.
const (
	fieldNone         field = ""
	fieldApp          field = "App"
	fieldJob          field = "Job"
	fieldTrigger      field = "Trigger"
	fieldRun          field = "Run"
	fieldKind         field = "Kind"
	fieldEventID      field = "EventID"
	fieldScheduledAt  field = "ScheduledAt"
	fieldPreviousFire field = "PreviousFire"
	fieldNextFire     field = "NextFire"
	fieldAttempt      field = "Attempt"
	fieldPayload      field = "Payload"
)

// TemplateFields and templateFunctions are all that a template may use.
var (
	TemplateFields = []string{
		string(fieldApp), string(fieldJob), string(fieldTrigger), string(fieldRun), string(fieldKind), string(fieldEventID),
		string(fieldScheduledAt), string(fieldPreviousFire), string(fieldNextFire), string(fieldAttempt), string(fieldPayload),
	}
	templateFunctions = []string{functionJSON, functionURLQuery, functionDate}
)

const (
	functionJSON     = "json"
	functionURLQuery = "urlquery"
	functionDate     = "date"
)

// instant tells the fields that are instants.
func (f field) instant() bool {
	return f == fieldScheduledAt || f == fieldPreviousFire || f == fieldNextFire
}

// of returns what a call has in a field; ok is false if that is nothing. Of a payload it says no more:
// that is long, and only written as JSON.
func (f field) of(c *Call) (text string, at time.Time, ok bool) {
	switch f {
	case fieldApp:
		text = c.App
	case fieldJob:
		text = c.Job
	case fieldTrigger:
		text = c.Trigger
	case fieldRun:
		text = c.Key.String()
	case fieldKind:
		text = string(c.Key.Kind)
	case fieldEventID:
		text = c.EventID
	case fieldScheduledAt:
		at = c.Key.ScheduledAt
	case fieldPreviousFire:
		at = c.PreviousFire
	case fieldNextFire:
		at = c.NextFire
	case fieldAttempt:
		text = strconv.Itoa(c.Attempt)
	case fieldPayload:
		return "", at, len(c.Payload) > 0
	}
	return text, at, text != "" || !at.IsZero()
}

// render returns the text for a call. With escape, values are percent-encoded, as those of a URL
// have to be. ok is false if the text would have more than most bytes.
func (t *template) render(c *Call, most int, escape bool) (text string, ok bool) {
	r := rendering{call: c, most: most, escape: escape}
	ok = r.add(t.parts)
	return string(r.out), ok
}

type rendering struct {
	call    *Call
	most    int
	escape  bool
	payload string // on one line, once it is used
	out     []byte
}

func (r *rendering) add(parts []part) bool {
	for _, p := range parts {
		switch {
		case p.value != nil:
			r.put(p.value)
		case p.when != fieldNone:
			chosen := p.otherwise
			if _, _, is := p.when.of(r.call); is {
				chosen = p.then
			}
			if !r.add(chosen) {
				return false
			}
		default:
			r.out = append(r.out, p.text...)
		}
		if len(r.out) > r.most {
			return false
		}
	}
	return true
}

// put writes what an expression says of the call.
func (r *rendering) put(e *expression) {
	text, at, some := e.literal, time.Time{}, true
	if e.field != fieldNone {
		text, at, some = e.field.of(r.call)
	}
	switch {
	case !e.field.instant() || !some:
	case e.layout == "":
		text = FormatInstant(at)
	default:
		text = formatDate(e.layout, at.In(e.zone))
	}
	if e.json {
		text = r.asJSON(e.field, text, some)
	}
	if r.escape || e.escaped {
		r.out = appendEscaped(r.out, text)
	} else {
		r.out = append(r.out, text...)
	}
}

// asJSON returns the text of a field as JSON, on one line; what there is none of is null.
func (r *rendering) asJSON(f field, text string, some bool) string {
	switch {
	case !some:
		return "null"
	case f == fieldAttempt:
		return text
	case f == fieldPayload:
		if r.payload == "" {
			var line bytes.Buffer
			_ = json.Compact(&line, r.call.Payload) // anyone who stores a payload has checked it
			r.payload = line.String()
		}
		return r.payload
	}
	quoted, _ := json.Marshal(text) // no text fails to
	return string(quoted)
}

// appendEscaped percent-encodes all but what RFC 3986, section 2.3, leaves as it is everywhere, so that
// a value stays within its segment of a path or its parameter of a query or form.
func appendEscaped(out []byte, text string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			out = append(out, c)
			continue
		}
		out = append(out, '%', digits[c>>4], digits[c&15])
	}
	return out
}

// dateLayouts are the directives of date, which are those of strftime, in Go's layouts. Three
// more, that no layout has, are in formatDate.
var dateLayouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'j': "002", 'b': "Jan", 'a': "Mon", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05",
}

// dateDirectives names all of them.
const dateDirectives = "%Y %m %d %H %M %S %L (milliseconds) %j %b %a %G %V %z %s (Unix seconds) %F %T %%"

// checkDate tells whether a layout has a directive, and none that is unknown.
func checkDate(layout string) bool {
	some := false
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			continue
		}
		if i++; i == len(layout) {
			return false
		}
		if _, known := dateLayouts[layout[i]]; !known && strings.IndexByte("LGVs%", layout[i]) < 0 {
			return false
		}
		some = some || layout[i] != '%'
	}
	return some
}

// formatDate writes an instant by a layout that checkDate takes.
func formatDate(layout string, at time.Time) string {
	var out []byte
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			out = append(out, layout[i])
			continue
		}
		i++
		year, week := at.ISOWeek()
		switch layout[i] {
		case '%':
			out = append(out, '%')
		case 's':
			out = strconv.AppendInt(out, at.Unix(), 10)
		case 'L':
			out = append(out, at.Format(".000")[1:]...)
		case 'G':
			out = strconv.AppendInt(out, int64(year), 10)
		case 'V':
			out = append(out, byte('0'+week/10), byte('0'+week%10))
		default:
			out = at.AppendFormat(out, dateLayouts[layout[i]])
		}
	}
	return string(out)
}
