package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf16"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// plain makes foreign text safe for a terminal; see input.ShownText.
func plain(text string) string { return input.ShownText(text, "") }

// plainJSON does the same to JSON, whose value stays the same. Its line breaks and blanks are between values.
func plainJSON(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && input.UnsafeToShow(r) }) {
		return text
	}
	var safe strings.Builder
	for _, r := range text {
		if r == '\n' || !input.UnsafeToShow(r) {
			safe.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&safe, `\u%04x`, unit)
		}
	}
	return safe.String()
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
		"cancelled": yellow, "skipped": yellow, "superseded": yellow, "disabled": yellow,
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
