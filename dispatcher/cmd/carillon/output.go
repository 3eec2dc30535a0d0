package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// outputFlags set the format of a command's result.
type outputFlags struct {
	Output string `short:"o" default:"table" enum:"table,json,jsonl" help:"table for people; json as the API has it, a list as {\"items\": [...]}; jsonl with one object a line."`
}

func (o outputFlags) form() outputFlags { return o }

// The output formats.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputLines = "jsonl"
)

// items is a list in the form of the API, with the items of all pages.
type items[T any] struct {
	Items []T `json:"items"`
}

// printList prints a list. As a table, row returns the cells of an item, and tabs separate the titles.
func printList[T any](o outputFlags, c console, all []T, titles string, row func(T) []any) error {
	switch o.Output {
	case outputJSON:
		if all == nil {
			all = []T{}
		}
		return printJSON(c.out, items[T]{all})
	case outputLines:
		for _, one := range all {
			if err := printJSONLine(c.out, one); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable(titles)
	for _, one := range all {
		t.add(row(one)...)
	}
	return t.show(c)
}

// printObject prints one object; show adds the lines for people.
func printObject(o outputFlags, c console, object any, show func(*lines)) error {
	switch o.Output {
	case outputJSON:
		return printJSON(c.out, object)
	case outputLines:
		return printJSONLine(c.out, object)
	}
	var l lines
	show(&l)
	return l.show(c)
}

// lines are names with values, in paragraphs.
type lines struct{ table table }

// add adds a line, unless the value is empty.
func (l *lines) add(name string, value any) {
	if cellOf(value, false) != "" {
		l.table.add(name, value)
	}
}

// paragraph adds an empty line.
func (l *lines) paragraph() { l.table.rows = append(l.table.rows, nil) }

func (l *lines) show(c console) error { return l.table.show(c) }

// table is text in columns. Its cells may contain any text, which is made plain.
type table struct{ rows [][]any }

// newTable returns a table with titles, which tabs separate.
func newTable(titles string) *table {
	t := &table{}
	var row []any
	for title := range strings.SplitSeq(titles, "\t") {
		row = append(row, title)
	}
	t.rows = append(t.rows, row)
	return t
}

func (t *table) add(cells ...any) { t.rows = append(t.rows, cells) }

// show prints the rows; each column is as wide as its widest cell.
func (t *table) show(c console) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cellOf(cell, false)))
		}
	}
	var text strings.Builder
	colours := hasColours(c.out)
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cellOf(cell, colours))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", 2+widths[i]-utf8.RuneCountInString(cellOf(cell, false))))
			}
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(c.out, text.String())
	return err
}

// cellOf returns the text of a cell. Times are in UTC, in seconds unless they have a fraction.
func cellOf(value any, colours bool) string {
	switch v := value.(type) {
	case nil:
		return ""
	case stateCell:
		return v.text(colours)
	case time.Time:
		return input.FormatInstant(v)
	case *time.Time:
		if v == nil {
			return ""
		}
		return input.FormatInstant(*v)
	}
	return plain(fmt.Sprint(value))
}

// printJSON prints a value as indented JSON.
func printJSON(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, plainJSON(text.String()))
	return err
}

func printJSONLine(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, plainJSON(text.String()))
	return err
}

// plain makes foreign text safe for a terminal; see input.ShownText.
func plain(text string) string { return input.ShownText(text, "") }

// plainJSON makes JSON safe without changing its value. Its line breaks and blanks are between values.
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

// hasColours reports whether to use colours: only on a terminal, and not with NO_COLOR (https://no-color.org).
func hasColours(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && cmp.Or(os.Getenv("TERM"), "dumb") != "dumb"
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// stateCell is a state, which has a colour on a terminal.
type stateCell string

func (s stateCell) text(colours bool) string {
	word, _, _ := strings.Cut(string(s), " ")
	colour := map[string]int{
		"succeeded": green, "active": green, "ok": green,
		"failed": red, "lost": red, "timed_out": red, "error": red, "dead": red, "missing": red,
		"retrying": yellow, "waiting_callback": yellow, "waiting_shards": yellow, "paused": yellow, "draining": yellow,
		"cancelled": yellow, "skipped": yellow, "superseded": yellow, "disabled": yellow, "silent": yellow,
	}[word]
	if !colours || colour == 0 {
		return plain(string(s))
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, plain(string(s)))
}

// Terminal colours.
const (
	red    = 31
	green  = 32
	yellow = 33
)

// progress reports the progress of a long command on standard error, so that its output stays unchanged.
type progress struct {
	c    console
	what string
	last time.Time
}

func newProgress(c console, what string) *progress {
	return &progress{c: c, what: what, last: time.Now()}
}

// say prints a number, unless it has just printed one.
func (p *progress) say(n int) {
	const pace = 2 * time.Second
	if now := time.Now(); now.Sub(p.last) >= pace {
		p.last = now
		fmt.Fprintf(p.c.err, "carillon: %d %s so far\n", n, p.what)
	}
}
