package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
)

// plain makes foreign text safe for a terminal: nothing in it moves the cursor, changes colours, or reverses the order of
// what follows. What would is written as a Go string has it, such as \x1b or \u202e.
func plain(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd") // a byte of its own could be a control character, too
	if !strings.ContainsFunc(text, unsafeToShow) {
		return text
	}
	var safe strings.Builder
	for _, r := range text {
		switch {
		case !unsafeToShow(r):
			safe.WriteRune(r)
		case r == '\n':
			safe.WriteString(`\n`)
		case r == '\t':
			safe.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&safe, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&safe, `\u%04x`, r)
		default:
			fmt.Fprintf(&safe, `\U%08x`, r)
		}
	}
	return safe.String()
}

// plainJSON does the same to JSON, whose value stays the same. Its line breaks and blanks are between values.
func plainJSON(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && unsafeToShow(r) }) {
		return text
	}
	var safe strings.Builder
	for _, r := range text {
		if r == '\n' || !unsafeToShow(r) {
			safe.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&safe, `\u%04x`, unit)
		}
	}
	return safe.String()
}

// unsafeToShow tells control characters, invisible ones that format text, such as those that change its direction, and
// separators of lines.
func unsafeToShow(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// hasColours tells whether colours are wanted: only on a terminal, and not with NO_COLOR (https://no-color.org).
func hasColours(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && cmp.Or(os.Getenv("TERM"), "dumb") != "dumb"
}

// isTerminal tells whether people see what is written.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// stateCell is the state of something, which has a colour on a terminal.
type stateCell string

func (s stateCell) text(colours bool) string {
	word, _, _ := strings.Cut(string(s), " ")
	colour := map[string]int{
		"succeeded": green, "active": green, "ok": green,
		"failed": red, "lost": red, "timed_out": red, "error": red, "dead": red, "missing": red,
		"retrying": yellow, "waiting_callback": yellow, "waiting_shards": yellow, "paused": yellow, "draining": yellow,
		"cancelled": yellow, "skipped": yellow, "disabled": yellow,
	}[word]
	if !colours || colour == 0 {
		return plain(string(s))
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, plain(string(s)))
}

// Colours of a terminal.
const (
	red    = 31
	green  = 32
	yellow = 33
)
