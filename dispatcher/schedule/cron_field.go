package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// firstYear is the first year an expression can name, as in Quartz; see set.
const firstYear = 1970

// field describes one field of a cron expression.
type field struct {
	name     string
	low      int
	high     int
	names    []string // accepted words; the first means nameLow
	nameLow  int
	wraps    bool // a range may continue at low after high, as in 22-2
	bareStep bool // "/5" means "*/5"
	// quartzNames refuses two notations that Quartz misreads: a step after a name, which it
	// ignores, and a range of a name and a number.
	quartzNames bool
	days        bool // a day field, which may be ?
	noSteps     bool // "/" is not allowed
}

// item is one element of a field's comma-separated list, with its field for messages.
type item struct {
	*field
	token
}

// items splits the text of a field at commas.
func (f *field) items(tok token) ([]item, *input.Problem) {
	out := make([]item, 0, strings.Count(tok.text, ",")+1)
	for part := range strings.SplitSeq(tok.text, ",") {
		if part == "" {
			return nil, problemf(input.CodeCronSyntax,
				"empty list item in the %s field at column %d; remove the comma", f.name, tok.column)
		}
		out = append(out, item{f, token{part, tok.column, tok.identity}})
		tok.column += len(part) + 1
	}
	return out, nil
}

// parseSet reads a field without the special characters of day fields.
func (f *field) parseSet(tok token) (set, *input.Problem) {
	var s set
	if strings.IndexByte(tok.text, ',') < 0 { // most fields have one item
		err := item{f, tok}.addTo(&s)
		return s, err
	}
	items, err := f.items(tok)
	if err != nil {
		return s, err
	}
	for _, it := range items {
		if err := it.addTo(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// addTo adds the values of a plain item to s: *, a or a-b, each with an optional /step. A set
// holds years as their distance from firstYear.
func (it item) addTo(s *set) *input.Problem {
	low, high, step, err := it.bounds()
	if err != nil {
		return err
	}
	base := 0
	if it.low >= firstYear {
		base = firstYear
	}
	size := it.high - it.low + 1
	if low == it.low && high == it.high && step == 1 {
		for i, word := range all(low-base, high-base) {
			s[i] |= word
		}
		return nil
	}
	if high < low {
		high += size // the range wraps; bounds refuses others
	}
	for v := low; v <= high; v += step {
		s.add(it.low + (v-it.low)%size - base)
	}
	return nil
}

// bounds returns the range and the step of an item.
func (it item) bounds() (low, high, step int, err *input.Problem) {
	body, stepText, stepped := strings.Cut(it.text, "/")
	step = 1
	if stepped {
		if step, err = it.step(body, stepText); err != nil {
			return 0, 0, 0, err
		}
	}
	if body == "H" || strings.HasPrefix(body, "H(") {
		low, high, err = it.hashed(body, step, stepped)
		return low, high, step, err
	}
	switch from, to, ranged := strings.Cut(body, "-"); {
	case body == "*", body == "" && stepped && it.bareStep:
		low, high = it.low, it.high
	case body == "":
		return 0, 0, 0, it.malformed("write */" + stepText)
	case ranged:
		low, high, err = it.ends(from, to)
	default:
		low, err = it.value(body)
		if high = low; stepped {
			high = max(low, it.high)
		}
	}
	if err == nil && stepped && it.endsInName(body) {
		return 0, 0, 0, problemf(input.CodeCronStep, "step after a name in %q of the %s field; write numbers, such as %d-%d/%d",
			it.text, it.name, low, high, step)
	}
	return low, high, step, err
}

// endsInName reports whether the text before a slash ends in a name, after which Quartz takes no step.
func (it item) endsInName(body string) bool {
	return it.quartzNames && body != "" && isLetter(body[len(body)-1])
}

// ends reads the two ends of a range.
func (it item) ends(from, to string) (low, high int, err *input.Problem) {
	switch {
	case from == "" || to == "" || from == "*" || to == "*" || strings.Contains(to, "-"):
		return 0, 0, it.malformed("write a range as " + it.example())
	case it.quartzNames && isLetter(from[0]) != isLetter(to[0]):
		return 0, 0, it.malformed("write both ends of a range as names or both as numbers")
	}
	if low, err = it.value(from); err != nil {
		return 0, 0, err
	}
	if high, err = it.value(to); err != nil {
		return 0, 0, err
	}
	if low > high && !it.wraps {
		return 0, 0, problemf(input.CodeCronRange, "start %s is after end %s in the %s field; %s",
			from, to, it.name, it.straightened(from, to, low, high))
	}
	return low, high, nil
}

// straightened is the advice for a range from one value to an earlier one, where ranges do not wrap.
func (it item) straightened(from, to string, low, high int) string {
	_, stepText, stepped := strings.Cut(it.text, "/")
	switch {
	case it.name == fieldYear:
		return fmt.Sprintf("swap the two: %s-%s", to, from)
	case strings.HasPrefix(it.text, "H"):
		return "H takes a range such as H(" + it.example() + ")"
	case stepped: // two ranges would count the second from its own start
		var values []string
		size := it.last() - it.low + 1
		for v := low; v <= high+size; v += number(stepText) {
			values = append(values, strconv.Itoa(it.low+(v-it.low)%size))
		}
		return "list the values: " + strings.Join(values, ",")
	}
	first, last := strconv.Itoa(it.low), strconv.Itoa(it.last())
	if it.names != nil && isLetter(to[0]) {
		first = it.names[0]
	}
	if it.names != nil && isLetter(from[0]) {
		last = it.names[len(it.names)-1]
	}
	return fmt.Sprintf("write it as two ranges: %s,%s", rangeText(from, last), rangeText(first, to))
}

// last is the last value of a round. Crontab's weekday 7 begins the next one.
func (it item) last() int {
	if it.name == fieldWeekday && it.low == 0 {
		return 6
	}
	return it.high
}

// rangeText writes a range, or its only value.
func rangeText(from, to string) string {
	if from == to {
		return from
	}
	return from + "-" + to
}

// step reads the text after a slash. body is the text before it.
func (it item) step(body, text string) (int, *input.Problem) {
	most := it.high
	if it.high >= firstYear {
		most = it.high - it.low
	}
	switch {
	case it.noSteps:
		return 0, it.malformed("this field takes no steps; list the values")
	case text == "":
		return 0, problemf(input.CodeCronStep, "no step after / in %q of the %s field", it.text, it.name)
	case !isNumber(text):
		return 0, it.malformed("write the step as a whole number")
	}
	n := number(text)
	switch {
	case n == 0:
		return 0, problemf(input.CodeCronStep, "step in %q of the %s field must be at least 1", it.text, it.name)
	case n > most:
		start, _, _ := strings.Cut(body, "-")
		if start == "" || start == "*" {
			start = strconv.Itoa(it.low)
		}
		return 0, problemf(input.CodeCronStep,
			"step %s exceeds the range %d-%d of the %s field, so it is never reached; write only the start, %s",
			text, it.low, it.high, it.name, start)
	}
	return n, nil
}

// value reads a number or a name.
func (it item) value(text string) (int, *input.Problem) {
	if isNumber(text) {
		n := number(text)
		if n < it.low || n > it.high {
			advice := ""
			if it.name == "year" && n > it.high {
				advice = byHand
			}
			return 0, problemf(input.CodeCronRange, "%s %s is not in %d-%d%s", it.name, text, it.low, it.high, advice)
		}
		return n, nil
	}
	for i, name := range it.names {
		if text == name {
			return it.nameLow + i, nil
		}
	}
	if text == "" || text == "L" || text == "W" || text == "LW" || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return 0, it.malformed("")
	}
	if len(it.names) == 0 {
		return 0, problemf(input.CodeCronName, "%s is not valid in the %s field; write %d-%d", text, it.name, it.low, it.high)
	}
	return 0, problemf(input.CodeCronName, "%s is not valid in the %s field; write %d-%d or %s-%s",
		text, it.name, it.low, it.high, it.names[0], it.names[len(it.names)-1])
}

func (it item) malformed(advice string) *input.Problem {
	switch {
	case advice != "":
	case strings.Contains(it.text, "?") && it.days:
		advice = "? must be alone in its field"
	case strings.Contains(it.text, "?"):
		advice = "? is only valid in the day fields of dialects quartz and aws; write *"
	case strings.ContainsAny(it.text, "LW#"):
		advice = "L, W and # are only valid in the day fields of dialects quartz and aws"
	case it.names != nil:
		advice = fmt.Sprintf("write *, %d-%d, names, ranges a-b, lists a,b and steps */n", it.low, it.high)
	default:
		advice = fmt.Sprintf("write *, %d-%d, ranges a-b, lists a,b and steps */n", it.low, it.high)
	}
	return problemf(input.CodeCronSyntax, "%q in the %s field at column %d is not understood; %s", it.text, it.name, it.column, advice)
}

func (it item) example() string { return fmt.Sprintf("%d-%d", it.low, it.high) }

func isLetter(c byte) bool { return c >= 'A' && c <= 'Z' }

// isNumber reports whether text consists of ASCII digits and is not empty.
func isNumber(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// number converts a text that isNumber has accepted. A number too large for any field becomes
// a value that is also too large for any field.
func number(text string) int {
	n, _ := integer(text)
	return n
}

// integer is number, and reports whether the value is exact.
func integer(text string) (n int, exact bool) {
	const tooLarge = 1_000_000_000_000
	for _, c := range []byte(text) {
		if n = n*10 + int(c-'0'); n > tooLarge {
			return tooLarge, false
		}
	}
	return n, true
}

// set is a set of numbers from 0 to 255, enough for any cron field. It holds years as their
// distance from firstYear.
type set [4]uint64

func (s *set) add(v int) { s[v>>6] |= 1 << (v & 63) }

// has reports whether v, which may be any number, is an element.
func (s *set) has(v int) bool { return v >= 0 && v < 256 && s[v>>6]>>(v&63)&1 == 1 }

// next returns the smallest element that is at least v.
func (s *set) next(v int) (int, bool) {
	if v < 0 {
		v = 0
	}
	for word := v >> 6; word < len(s); word++ {
		rest := s[word]
		if word == v>>6 {
			rest &= ^uint64(0) << (v & 63)
		}
		if rest != 0 {
			return word<<6 + bits.TrailingZeros64(rest), true
		}
	}
	return 0, false
}

// list returns the elements in order.
func (s *set) list() []int {
	var out []int
	for v, ok := s.next(0); ok; v, ok = s.next(v + 1) {
		out = append(out, v)
	}
	return out
}

func (s *set) len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// all returns the set of low to high, both inclusive.
func all(low, high int) set {
	var s set
	for word := low >> 6; word <= high>>6; word++ {
		s[word] = ^uint64(0)
	}
	s[low>>6] &= ^uint64(0) << (low & 63)
	s[high>>6] &= ^uint64(0) >> (63 - high&63)
	return s
}
