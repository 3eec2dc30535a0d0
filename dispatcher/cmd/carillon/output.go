package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
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

// printSaid prints one object, for people as a sentence.
func printSaid(o outputFlags, c console, object any, said string) error {
	if o.Output != outputTable {
		return printObject(o, c, object, nil)
	}
	_, err := fmt.Fprintln(c.out, said)
	return err
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
		"late": yellow, "saturated": yellow, "wrong": yellow, "certificate": yellow, "expired": red,
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

// pageSize is how many items a command requests at once.
const pageSize = 500

// allPages reads page after page, at most most items in all; 0 means no limit. more reports whether others remain.
func allPages[T any](most int, read func(input.Page) (client.List[T], error)) (all []T, more bool, err error) {
	page := input.Page{Limit: pageSize}
	for {
		if left := most - len(all); most > 0 && left < page.Limit {
			page.Limit = left
		}
		list, err := read(page)
		if err != nil {
			return nil, false, err
		}
		all = append(all, list.Items...)
		page.Cursor = list.Next
		switch {
		case list.Next == "":
			return all, false, nil
		case most > 0 && len(all) >= most:
			return all, true, nil
		}
	}
}

// appsOr returns the named app, or without a name all apps that the token may see.
func appsOr(ctx context.Context, api *client.Client, name string) ([]string, error) {
	if name != "" {
		return []string{name}, nil
	}
	all, _, err := allPages(0, func(page input.Page) (client.List[access.App], error) { return api.Apps(ctx, page) })
	names := make([]string, len(all))
	for i, app := range all {
		names[i] = app.Name
	}
	return names, err
}

// appListFlags are the flags of commands that list objects of one app or of all apps.
type appListFlags struct {
	apiFlags
	outputFlags
	App string `arg:"" optional:"" help:"Name of the app. Default: all that the token may see."`
}

// listOf reads a page of an app's objects.
type listOf[T any] func(api *client.Client, ctx context.Context, app string, page input.Page) (client.List[T], error)

// listBy lists by a method of the client, such as (*client.Client).Calendars.
func listBy[T any](read func(*client.Client, context.Context, string, input.Page) (client.List[T], error)) listOf[T] {
	return read
}

func (list listOf[T]) all(ctx context.Context, api *client.Client, app string) ([]T, error) {
	all, _, err := allPages(0, func(page input.Page) (client.List[T], error) { return list(api, ctx, app, page) })
	return all, err
}

// show prints the objects of the app, or without one of all apps that the token may see.
func (list listOf[T]) show(ctx context.Context, c console, l appListFlags, titles string, row func(T) []any) error {
	api, err := l.ProvideClient(ctx)
	if err != nil {
		return err
	}
	apps, err := appsOr(ctx, api, l.App)
	if err != nil {
		return err
	}
	var all []T
	read := newProgress(c, "rows")
	for _, app := range apps {
		found, err := list.all(ctx, api, app)
		if err != nil {
			return err
		}
		all = append(all, found...)
		read.say(len(all))
	}
	return printList(l.outputFlags, c, all, titles, row)
}

// opener are the flags of a command that name one object of an app.
type opener interface {
	// open returns a client, and the names of the app and the object.
	open(ctx context.Context) (api *client.Client, app, name string, err error)
	form() outputFlags
}

// printNamed prints the object that flags name. read is a method of the client such as
// (*client.Client).Calendar; show adds the lines for people.
func printNamed[T any](ctx context.Context, c console, of opener,
	get func(*client.Client, context.Context, string, string) (T, error), show func(*lines, T)) error {
	api, app, name, err := of.open(ctx)
	if err != nil {
		return err
	}
	found, err := get(api, ctx, app, name)
	if err != nil {
		return err
	}
	return printObject(of.form(), c, found, func(l *lines) { show(l, found) })
}

// cutPath splits an argument such as APP/JOB/TRIGGER; parts after the required ones may be missing.
func cutPath(argument, form string, required int) ([]string, error) {
	parts := strings.Split(argument, "/")
	most := strings.Count(form, "/") + 1
	valid := len(parts) >= required && len(parts) <= most
	for _, part := range parts {
		valid = valid && part != ""
	}
	if !valid {
		return nil, &usageError{fmt.Errorf("argument %s is not %s", input.Echo(argument), form)}
	}
	return append(parts, make([]string, most-len(parts))...), nil
}

// ofFlags name what a list is about.
type ofFlags struct {
	Of string `arg:"" optional:"" name:"app[/job[/trigger]]" help:"Only of this app, job or trigger, such as billing, billing/invoices or billing/invoices/berlin. Default: all that the token may see."`
}

// names returns the names of the app, the job and the trigger; empty: all.
func (f ofFlags) names() (app, job, trigger string, err error) {
	return cutOf(f.Of, "APP[/JOB[/TRIGGER]]")
}

// ofJobFlags name what a list is about that knows no triggers.
type ofJobFlags struct {
	Of string `arg:"" optional:"" name:"app[/job]" help:"Only of this app or job, such as billing or billing/invoices. Default: all that the token may see."`
}

// names returns the names of the app and the job; empty: all.
func (f ofJobFlags) names() (app, job string, err error) {
	app, job, _, err = cutOf(f.Of, "APP[/JOB]")
	return app, job, err
}

func cutOf(argument, form string) (app, job, trigger string, err error) {
	if argument == "" {
		return "", "", "", nil
	}
	names, err := cutPath(argument, form, 1)
	if err != nil {
		return "", "", "", err
	}
	names = append(names, "") // the form may have no trigger
	return names[0], names[1], names[2], nil
}

// named returns a client, and the names in an argument such as APP/JOB.
func (a *apiFlags) named(ctx context.Context, argument, form string) (api *client.Client, app, name string, err error) {
	names, err := cutPath(argument, form, 2)
	if err != nil {
		return nil, "", "", err
	}
	api, err = a.ProvideClient(ctx)
	return api, names[0], names[1], err
}

// periodFlags bound a list in time.
type periodFlags struct {
	Since string `placeholder:"TIME" help:"Only from here on: a duration before now such as 24h, or an instant in RFC 3339."`
	Until string `placeholder:"TIME" help:"Only up to here, as --since."`
}

// period parses the flags; a time is zero if its flag is not given.
func (p periodFlags) period(now time.Time) (from, to time.Time, err error) {
	for _, flag := range []struct {
		name, text string
		into       *time.Time
	}{{"since", p.Since, &from}, {"until", p.Until, &to}} {
		var problem error
		if *flag.into, problem = moment(flag.text, now); problem != nil {
			err = errors.Join(err, fmt.Errorf("--%s: %w", flag.name, problem))
		}
	}
	if err != nil {
		err = &usageError{err}
	}
	return from, to, err
}

// moment parses a duration before now, such as 2h or 2h ago, or a time; zero if text is empty.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := input.ParseInstant(text); err == nil {
		return at, nil
	}
	var ago input.Duration
	if err := ago.UnmarshalText([]byte(strings.TrimSuffix(text, " ago"))); err == nil && ago >= 0 {
		return now.Add(-ago.Std()), nil
	}
	return time.Time{}, fmt.Errorf("%s is neither a duration such as 1h nor an instant such as 2026-05-01T06:00:00+02:00",
		input.Echo(text))
}

// plainNumber parses a decimal flag. Kong's own mapper reads 010 as eight, and accepts 0x10 and 1_000.
func plainNumber(ctx *kong.DecodeContext, target reflect.Value) error {
	value, err := ctx.Scan.PopValue("number")
	if err != nil {
		return err
	}
	text := fmt.Sprint(value.Value)
	n, err := strconv.ParseInt(text, 10, target.Type().Bits())
	if err != nil || strconv.FormatInt(n, 10) != text {
		return fmt.Errorf("%s is not a plain number such as 10", input.Echo(text))
	}
	target.SetInt(n)
	return nil
}
