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

// outputFlags say in which form a command prints its result.
type outputFlags struct {
	Output string `short:"o" default:"table" enum:"table,json,jsonl" help:"table for people; json as the API has it, a list as {\"items\": [...]}; jsonl with one object a line."`
}

func (o outputFlags) form() outputFlags { return o }

// The forms of output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputLines = "jsonl"
)

// items is a list as the API has it, with the items of all its pages.
type items[T any] struct {
	Items []T `json:"items"`
}

// showList prints a list: as a table, a row makes the cells of an item, under titles that tabs separate.
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

// showObject prints one object; shown adds the lines that people see of it.
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

// lines are names with their values, and paragraphs of them.
type lines struct{ table table }

// add adds a line, unless the value is empty.
func (l *lines) add(name string, value any) {
	if cellOf(value, false) != "" {
		l.table.add(name, value)
	}
}

// paragraph leaves a line empty.
func (l *lines) paragraph() { l.table.rows = append(l.table.rows, nil) }

func (l *lines) show(c console) error { return l.table.show(c) }

// table is text in columns. Its cells may hold anything: they are made plain.
type table struct{ rows [][]any }

// newTable returns a table with a line of titles, which tabs separate.
func newTable(titles string) *table {
	t := &table{}
	var row []any
	for title := range strings.SplitSeq(titles, "\t") {
		row = append(row, title)
	}
	t.rows = append(t.rows, row)
	return t
}

// add adds a row.
func (t *table) add(cells ...any) { t.rows = append(t.rows, cells) }

// show prints the rows, with each column as wide as its widest cell.
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

// cellOf is the text of a cell. Instants are in UTC, to the second unless they have a fraction.
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

// showJSON prints a value as indented JSON.
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

// showJSONLine prints a value as one line of JSON.
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

// progress says on standard error how far a command is that takes long, so that its output stays as it is.
type progress struct {
	c    console
	what string
	last time.Time
}

func newProgress(c console, what string) *progress {
	return &progress{c: c, what: what, last: time.Now()}
}

// say tells a number, unless it has told one just now.
func (p *progress) say(n int) {
	const pace = 2 * time.Second
	if now := time.Now(); now.Sub(p.last) >= pace {
		p.last = now
		fmt.Fprintf(p.c.err, "carillon: %d %s so far\n", n, p.what)
	}
}
