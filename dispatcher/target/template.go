package target

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// template is a checked text with actions between {{ and }} that stand for values of a call.
//
// Its language is a small subset of Go's text/template, and the parser of that package reads it. It is evaluated
// here, with a closed list of fields and functions, so it cannot reach anything else. It has no loops and no
// variables, and an action uses each function at most once, so the cost of evaluation is proportional to the length
// of the template and of its result, which are bounded.
type template struct {
	parts []part
	// fires is set if it uses PreviousFire or NextFire, payload if it uses Payload.
	fires, payload bool
}

// part is a plain text, a value, or a choice.
type part struct {
	text            string
	value           *expression
	when            field
	then, otherwise []part
}

// expression is a value and the functions applied to it, in this order.
type expression struct {
	field   field
	literal string         // without a field
	layout  string         // of date; empty without one
	zone    *time.Location // of date
	json    bool
	escaped bool // by urlquery
}

// field is a value that an action can name.
type field string

// The fields. All are the same on every attempt of a run, except the number of the attempt, and a state that an
// operator changes meanwhile.
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
	fieldShardIndex   field = "ShardIndex"
	fieldShardTotal   field = "ShardTotal"
	fieldParentRun    field = "ParentRun"
	fieldParentEvent  field = "ParentEvent"
	fieldParentState  field = "ParentState"
	fieldParentClass  field = "ParentClass"
	fieldParentError  field = "ParentError"
	fieldState        field = "State"
)

// The fields for templates of targets with callback, with the place to call back.
const (
	fieldCallbackURL     field = "CallbackURL"
	fieldCallbackToken   field = "CallbackToken"
	fieldCallbackTimeout field = "CallbackTimeout"
)

// The fields for templates of alerts. See AlertNotification.
const (
	fieldAlert      field = "Alert"
	fieldCondition  field = "Condition"
	fieldTransition field = "Transition"
	fieldTitle      field = "Title"
	fieldAt         field = "At"
	fieldSince      field = "Since"
	fieldCount      field = "Count"
	fieldClass      field = "Class"
	fieldError      field = "Error"
	fieldLateBy     field = "LateBy"
	fieldBy         field = "By"
	fieldReason     field = "Reason"

	fieldRunURL         field = "RunURL"
	fieldJobURL         field = "JobURL"
	fieldAlertURL       field = "AlertURL"
	fieldRunbookURL     field = "RunbookURL"
	fieldJobDescription field = "JobDescription"
	fieldResponse       field = "Response"
	fieldLastSuccess    field = "LastSuccess"
)

// A template of a job may use TemplateFields and templateFunctions, and CallbackTemplateFields if its target has
// callback. A template of an alert uses AlertTemplateFields in place of TemplateFields.
var (
	TemplateFields = []string{
		string(fieldApp), string(fieldJob), string(fieldTrigger), string(fieldRun), string(fieldKind), string(fieldEventID),
		string(fieldScheduledAt), string(fieldPreviousFire), string(fieldNextFire), string(fieldAttempt), string(fieldPayload),
		string(fieldShardIndex), string(fieldShardTotal), string(fieldParentRun), string(fieldParentEvent), string(fieldParentState),
		string(fieldParentClass), string(fieldParentError), string(fieldState),
	}
	CallbackTemplateFields = []string{string(fieldCallbackURL), string(fieldCallbackToken), string(fieldCallbackTimeout)}
	AlertTemplateFields    = []string{
		string(fieldApp), string(fieldAlert), string(fieldJob), string(fieldCondition), string(fieldTransition), string(fieldTitle),
		string(fieldAt), string(fieldSince), string(fieldCount), string(fieldTrigger), string(fieldRun), string(fieldScheduledAt),
		string(fieldClass), string(fieldError), string(fieldLateBy), string(fieldBy), string(fieldReason), string(fieldEventID),
		string(fieldAttempt), string(fieldPayload), string(fieldRunURL), string(fieldJobURL), string(fieldAlertURL),
		string(fieldRunbookURL), string(fieldJobDescription), string(fieldResponse), string(fieldLastSuccess),
	}
	templateFunctions = []string{functionJSON, functionURLQuery, functionDate}
)

const (
	functionJSON     = "json"
	functionURLQuery = "urlquery"
	functionDate     = "date"
)

// instant reports whether the field is a time.
func (f field) instant() bool {
	switch f {
	case fieldScheduledAt, fieldPreviousFire, fieldNextFire, fieldAt, fieldSince, fieldLastSuccess:
		return true
	}
	return false
}

// of returns the value of a field for a call; ok is false if it has none. It does not return JSON values, which are
// only written as JSON.
func (f field) of(c *Call) (text string, at time.Time, ok bool) {
	if c.Notification != nil {
		if text, at, is := f.ofNotification(c.Notification); is {
			return text, at, text != "" || !at.IsZero()
		}
	}
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
	case fieldShardIndex:
		if c.Shard != nil {
			text = strconv.Itoa(c.Shard.Index)
		}
	case fieldShardTotal:
		if c.Shard != nil {
			text = strconv.Itoa(c.Shard.Total)
		}
	case fieldPayload:
		return "", at, len(c.Payload) > 0
	case fieldState:
		return "", at, len(c.State()) > 0
	case fieldCallbackURL, fieldCallbackToken, fieldCallbackTimeout:
		if c.Callback != nil {
			text = f.ofCallback(*c.Callback)
		}
	default:
		if c.Cause != nil {
			text = f.ofCause(*c.Cause)
		}
	}
	return text, at, text != "" || !at.IsZero()
}

// ofCallback returns the value of a field about the callback.
func (f field) ofCallback(offer run.CallToken) string {
	switch f {
	case fieldCallbackURL:
		return offer.URL
	case fieldCallbackToken:
		return offer.Token
	}
	return offer.Timeout.String()
}

// ofCause returns the value of a field about the cause of the run.
func (f field) ofCause(cause run.Cause) string {
	switch f {
	case fieldParentRun:
		return cause.Run
	case fieldParentEvent:
		return cause.On
	case fieldParentState:
		return string(cause.State)
	case fieldParentClass:
		return string(cause.Class)
	case fieldParentError:
		return cause.Error
	}
	return ""
}

// render returns the text for a call. With escape, values are percent-encoded, as in a URL. ok is false
// if the text would have more than most bytes.
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

// put writes the value of an expression.
func (r *rendering) put(e *expression) {
	text, at, some := e.literal, time.Time{}, true
	if e.field != fieldNone {
		text, at, some = e.field.of(r.call)
	}
	switch {
	case !e.field.instant() || !some:
	case e.layout == "":
		text = input.FormatInstant(at)
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

// asJSON returns a field as JSON on one line; null if it has no value.
func (r *rendering) asJSON(f field, text string, some bool) string {
	switch {
	case !some:
		return "null"
	case f == fieldAttempt, f == fieldShardIndex, f == fieldShardTotal, f == fieldCount:
		return text
	case f == fieldState:
		return string(r.call.State())
	case f == fieldPayload:
		if r.payload == "" {
			var line bytes.Buffer
			_ = json.Compact(&line, r.call.Payload) // checked before it was stored
			r.payload = line.String()
		}
		return r.payload
	}
	quoted, _ := json.Marshal(text) // cannot fail for a text
	return string(quoted)
}

// appendEscaped percent-encodes all but the unreserved characters of RFC 3986, section 2.3, so that a
// value stays within its path segment or its parameter of a query or form.
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

// dateLayouts maps the directives of date, those of strftime, to Go's layouts. formatDate has three
// more that no layout can express.
var dateLayouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'j': "002", 'b': "Jan", 'a': "Mon", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05",
}

// dateDirectives names all directives.
const dateDirectives = "%Y %m %d %H %M %S %L (milliseconds) %j %b %a %G %V %z %s (Unix seconds) %F %T %%"

// checkDate reports whether a layout has a directive and no unknown one.
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

// formatDate writes a time by a layout that checkDate accepts.
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
