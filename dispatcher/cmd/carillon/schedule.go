package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

type scheduleCommand struct {
	Next         scheduleNextCommand `cmd:"" help:"Print the next fire times of an expression." example:"carillon schedule next --timezone Europe/Berlin --count 3 '0 0 6 1 * ?'"`
	DSTReport    dstReportCommand    `cmd:"" name:"dst-report" help:"List the triggers of a database or file that daylight saving skips, moves or repeats." example:"carillon schedule dst-report --year 2027"`
	TZDataReport zonesReportCommand  `cmd:"" name:"tzdata-report" help:"List the triggers of a database or file whose fires of the next 12 months other time zone data move." example:"carillon schedule tzdata-report --to /usr/share/zoneinfo"`
}

type scheduleNextCommand struct {
	apiFlags
	Expression string `arg:"" optional:"" help:"A Quartz, unix or EventBridge expression, rate(5m), at(2026-05-01T10:00:00Z), every 3 months, or every 45 minutes from 9:00 to 17:00 on MON-FRI."`
	Dialect    string `placeholder:"NAME" help:"Dialect of the expression: quartz, unix, aws, interval, at, calendar_interval or daily_interval. Default: detected."`
	Timezone   string `placeholder:"ZONE" help:"IANA time zone. Default: UTC."`
	From       string `placeholder:"INSTANT" help:"Print fires after this time, in RFC 3339. Default: now."`
	Count      int    `default:"10" help:"Number of fires, 1 to 1000."`
	Gap        string `placeholder:"RULE" help:"Rule for local times that daylight saving skips: skip or next. The default depends on the expression: skip for cron, next for at(...). every n days or more keeps its distance to the skipped time (02:30 becomes 03:30)."`
	Overlap    string `placeholder:"RULE" help:"Rule for local times that daylight saving repeats: last, first or both. The default depends on the expression: both for cron expressions with all 24 hours, first for every n days or more, otherwise last."`
	Identity   string `placeholder:"NAME" help:"Identity of the trigger that H hashes, such as app/job/trigger."`
	calendarFlags
	Batch bool `help:"Read queries from standard input, one per line, and print one line for each; see below."`
}

// Help documents the format of --batch.
func (scheduleNextCommand) Help() string { return batchHelp }

// Run prints one scheduled time per line, in UTC and in the schedule's zone.
func (s *scheduleNextCommand) Run(ctx context.Context, c console) error {
	if s.Batch {
		return runBatch(c.in, c.out)
	}
	if s.Expression == "" {
		return &usageError{errors.New("an expression is missing; write one, or use --batch to read queries from standard input")}
	}
	if s.Count < 1 || s.Count > 1000 {
		return &usageError{fmt.Errorf("--count: %d is not between 1 and 1000", s.Count)}
	}
	from := time.Now()
	if s.From != "" {
		var err error
		if from, err = input.ParseInstant(s.From); err != nil {
			return &usageError{fmt.Errorf("--from: %w", err)}
		}
	}
	spec := schedule.Spec{
		Expression: s.Expression, Dialect: schedule.Dialect(s.Dialect), Timezone: s.Timezone,
		Gap: schedule.Gap(s.Gap), Overlap: schedule.Overlap(s.Overlap), Anchor: from, Identity: s.Identity,
	}
	if err := s.apply(ctx, &s.apiFlags, &spec, c.err); err != nil {
		return err
	}
	parsed, err := schedule.Parse(spec)
	if err != nil {
		return &usageError{err}
	}
	if spec.Timezone == "" && schedule.WallClock(spec.Expression, spec.Dialect) {
		fmt.Fprintln(c.err, "note: without --timezone, times are in UTC; the trigger of a job must name its zone")
	}
	return s.print(c, parsed, from)
}

func (s *scheduleNextCommand) print(c console, parsed *schedule.Schedule, from time.Time) error {
	fmt.Fprintln(c.err, parsed.Describe(from))
	for _, warning := range parsed.Warnings(from) {
		fmt.Fprintf(c.err, "warning: %s\n", warning.Message)
	}
	times, failed := parsed.Between(from, farAway, s.Count)
	for _, at := range times {
		if _, err := fmt.Fprintf(c.out, "%s  %s\n", input.FormatInstant(at),
			parsed.In(at).Format("Mon 2006-01-02 15:04:05 -07:00 MST")); err != nil {
			return err
		}
	}
	if failed == nil && len(times) < s.Count {
		_, err := fmt.Fprintln(c.out, "none")
		return err
	}
	return failed
}

// farAway is later than every scheduled time.
var farAway = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

const batchHelp = `With --batch, each line of standard input is one query. Its columns are separated by tabs:

  dialect  expression  zone  from  n  [key=value ...]

dialect may be empty or "auto"; zone may be empty for UTC; from is an exclusive time in RFC 3339;
n is the number of scheduled times to print. Empty lines and lines that begin with # are ignored. The result is one
line:

  OK<TAB>t1,t2,...         times in UTC; "none" at the end if there are no more
  ERR<TAB>code<TAB>message if the query is invalid; the next line is read anyway

Keys: start=INSTANT, end=INSTANT, anchor=INSTANT (from which intervals count if there is no start; default: from),
repeat_count=N, gap=skip|next, overlap=last|first|both, preserve_hour=true|false (calendar_interval keeps its local
hour; default true), skip_day=true|false (calendar_interval skips a day that lacks its
hour; the same as gap=skip), identity=NAME (what H hashes).`

// The longest line, and the largest number of scheduled times in a result.
const (
	batchLine  = 1 << 20
	batchTimes = 100_000
)

// runBatch writes one line to out for each query of in. It fails only if reading or writing does.
func runBatch(in io.Reader, out io.Writer) error {
	results := bufio.NewWriter(out)
	lines := bufio.NewScanner(flushFirst{in, results})
	lines.Buffer(make([]byte, 0, 64<<10), batchLine)
	cache := schedule.NewCache(1000)
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		if _, err := fmt.Fprintln(results, runQuery(cache, line)); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), results.Flush())
}

// flushFirst flushes all results before it waits for more input, so that a caller can wait for each
// result before it sends the next query.
type flushFirst struct {
	io.Reader
	results *bufio.Writer
}

func (f flushFirst) Read(p []byte) (int, error) {
	if err := f.results.Flush(); err != nil {
		return 0, err
	}
	return f.Reader.Read(p)
}

func runQuery(cache *schedule.Cache, line string) string {
	spec, from, n, err := parseQuery(strings.Split(line, "\t"))
	var parsed *schedule.Schedule
	var times []time.Time
	if err == nil {
		if parsed, err = cache.Parse(spec); err == nil {
			times, err = parsed.Between(from, farAway, n)
		}
	}
	var problems input.Problems
	switch {
	case schedule.Never(err):
		return "OK\tnone"
	case errors.As(err, &problems):
		return "ERR\t" + problems[0].Code + "\t" + oneLine(err.Error())
	case err != nil:
		var problem *input.Problem
		if !errors.As(err, &problem) {
			problem = &input.Problem{Code: input.CodeInternal, Message: err.Error()}
		}
		return "ERR\t" + problem.Code + "\t" + oneLine(problem.Message)
	}
	texts := make([]string, 0, len(times)+1)
	for _, at := range times {
		texts = append(texts, at.Format(time.RFC3339Nano))
	}
	if len(times) < n {
		texts = append(texts, "none")
	}
	return "OK\t" + strings.Join(texts, ",")
}

func oneLine(message string) string {
	return strings.NewReplacer("\t", " ", "\n", " ").Replace(message)
}

// parseQuery parses the columns of a line. Its error is an *input.Problem.
func parseQuery(columns []string) (spec schedule.Spec, from time.Time, n int, err error) {
	if len(columns) < 5 {
		return spec, from, 0, &input.Problem{Code: input.CodeRequired, Message: fmt.Sprintf(
			"line has %d columns; write dialect, expression, zone, from and n, separated by tabs", len(columns))}
	}
	spec = schedule.Spec{Expression: columns[1], Timezone: columns[2]}
	if columns[0] != "auto" {
		spec.Dialect = schedule.Dialect(columns[0])
	}
	if from, err = input.ParseInstant(columns[3]); err != nil {
		return spec, from, 0, err
	}
	spec.Anchor = from
	if n, err = number("n", columns[4], batchTimes); err != nil {
		return spec, from, n, err
	}
	for _, column := range columns[5:] {
		if column == "" {
			continue
		}
		if err := setOption(&spec, column); err != nil {
			return spec, from, n, err
		}
	}
	return spec, from, n, nil
}

func number(name, text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, &input.Problem{Code: input.CodeCountRange,
			Message: fmt.Sprintf("%s %s is not a number from 0 to %d", name, input.Echo(text), most)}
	}
	return n, nil
}

// setOption applies one key=value column.
func setOption(spec *schedule.Spec, column string) (err error) {
	key, value, _ := strings.Cut(column, "=")
	switch key {
	case "start":
		spec.StartAt, err = input.ParseInstant(value)
	case "end":
		spec.EndAt, err = input.ParseInstant(value)
	case "anchor":
		spec.Anchor, err = input.ParseInstant(value)
	case "repeat_count":
		spec.RepeatCount, err = number(key, value, 1_000_000_000)
	case "gap":
		spec.Gap = schedule.Gap(value)
	case "overlap":
		spec.Overlap = schedule.Overlap(value)
	case "identity":
		spec.Identity = value
	case "preserve_hour":
		var keep bool
		keep, err = truth(key, value)
		spec.DriftHour = !keep
	case "skip_day":
		var skip bool
		if skip, err = truth(key, value); skip {
			spec.Gap = schedule.GapSkip
		}
	default:
		err = &input.Problem{Code: input.CodeQueryUnknown, Message: "option " + input.Echo(key) +
			" is unknown; write start, end, anchor, repeat_count, gap, overlap, preserve_hour, skip_day or identity"}
	}
	return err
}

func truth(key, value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, &input.Problem{Code: input.CodeEnum, Message: key + " " + input.Echo(value) + " is not true or false"}
	}
	return value == "true", nil
}

// nextCommand lists the next fires of an app.
type nextCommand struct {
	apiFlags
	outputFlags
	Of       string         `arg:"" name:"app[/job]" help:"The app, such as billing, or a job, such as billing/invoices."`
	For      input.Duration `default:"12h" help:"How far to look ahead, at most 8760h."`
	Timezone string         `placeholder:"ZONE" help:"IANA time zone of the times. Default: that of this machine."`
	Each     int            `default:"10" help:"How many fires of one trigger to list, 1 to 1000; the others are counted."`
}

// upcoming is an upcoming fire.
type upcoming struct {
	At      time.Time  `json:"at"`
	Job     string     `json:"job"`
	Trigger string     `json:"trigger"`
	DueAt   *time.Time `json:"due_at,omitempty"` // with jitter
	// Held is why the fire will not run at that time; empty if it will.
	Held string `json:"held,omitempty"`
	// More, on the last listed fire of a trigger, counts the unlisted ones. Until is the last of them.
	More  int        `json:"more,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// Run prints the fires of all jobs, ordered by time.
func (n *nextCommand) Run(ctx context.Context, c console) error {
	now := time.Now()
	zone := now.Location()
	if n.Timezone != "" {
		var err error
		if zone, err = locationOf(n.Timezone); err != nil {
			return &usageError{fmt.Errorf("--timezone: %w", err)}
		}
	}
	if n.For <= 0 || n.For.Std() > 366*24*time.Hour || n.Each < 1 || n.Each > 1000 {
		return &usageError{fmt.Errorf("--for %s has to be at most 8760h, and --each %d from 1 to 1000", n.For, n.Each)}
	}
	content, err := n.content(ctx, c)
	if err != nil {
		return err
	}
	fires, problems := n.fires(content, now, now.Add(n.For.Std()))
	for _, problem := range problems {
		fmt.Fprintln(c.err, "carillon:", plain(problem))
	}
	err = printList(n.outputFlags, c, fires, zoneName(zone)+"\tJOB\tTRIGGER\tNOTE", func(u upcoming) []any {
		return []any{u.At.In(zone).Format("Mon 2006-01-02 15:04:05"), u.Job, u.Trigger, u.note(zone)}
	})
	if err == nil && len(fires) == 0 && n.Output == outputTable {
		fmt.Fprintf(c.err, "carillon: %s fires nothing before %s\n", plain(n.Of), now.Add(n.For.Std()).In(zone).Format(time.DateTime))
	}
	return err
}

// content reads the app, with all of its jobs or with the named one.
func (n *nextCommand) content(ctx context.Context, c console) (content tfconfig.Content, err error) {
	app, job, _, err := cutOf(n.Of, "APP[/JOB]")
	if err != nil {
		return content, err
	}
	api, err := n.ProvideClient(ctx)
	if err == nil {
		content, err = contentOf(ctx, c, api, app)
	}
	if err != nil || job == "" {
		return content, err
	}
	content.Jobs = slices.DeleteFunc(content.Jobs, func(one dispatcher.Job) bool { return one.Name != job })
	if len(content.Jobs) == 0 {
		err = dispatcher.NotFound("job", n.Of)
	}
	return content, err
}

// locationOf returns a zone by the data that schedules are computed with.
func locationOf(zone string) (*time.Location, error) {
	clock, err := schedule.Parse(schedule.Spec{Expression: "@daily", Timezone: zone})
	if err != nil {
		return nil, err
	}
	return clock.In(time.Time{}).Location(), nil
}

func zoneName(zone *time.Location) string {
	if zone == time.Local {
		return "LOCAL TIME"
	}
	return zone.String()
}

// note describes what is special about a fire.
func (u upcoming) note(zone *time.Location) string {
	var parts []string
	if u.Held != "" {
		parts = append(parts, u.Held)
	}
	if u.DueAt != nil {
		parts = append(parts, "runs at "+u.DueAt.In(zone).Format("15:04:05"))
	}
	if u.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more until %s", u.More, u.Until.In(zone).Format("Mon 15:04:05")))
	}
	return strings.Join(parts, "; ")
}

// fires returns the fires of an app in (from, to], and the triggers that cannot be evaluated.
func (n *nextCommand) fires(content tfconfig.Content, from, to time.Time) (all []upcoming, problems []string) {
	calendars := dispatcher.CompileCalendars(content.Calendars)
	for _, job := range content.Jobs {
		for name, t := range job.Triggers {
			if t.State == dispatcher.TriggerComplete {
				continue
			}
			var found []upcoming
			s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
			if err == nil {
				found, err = n.listed(s, t.NextFireTime, from, to)
			}
			if err != nil {
				problems = append(problems, fmt.Sprintf("trigger %s/%s: %v", job.Name, name, err))
			}
			for _, one := range found {
				one.Job, one.Trigger, one.Held = job.Name, name, whyHeld(content.App, job, t, one.At)
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b upcoming) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Job, b.Job), strings.Compare(a.Trigger, b.Trigger))
	})
	slices.Sort(problems)
	return all, problems
}

// listed returns the fires of one trigger. With a fixed delay, fires after next depend on the duration of the run.
func (n *nextCommand) listed(s *schedule.Schedule, next *time.Time, from, to time.Time) (found []upcoming, err error) {
	const most = 100_000
	var times []time.Time
	if _, delayed := s.FixedDelay(); !delayed {
		times, err = s.Between(from, to, most)
	} else if next != nil && next.After(from) && !next.After(to) {
		times = []time.Time{*next}
	}
	for _, at := range times[:min(len(times), n.Each)] {
		one := upcoming{At: at}
		if delay := s.Delay(at); delay > 0 {
			one.DueAt = new(at.Add(delay))
		}
		found = append(found, one)
	}
	if rest := len(times) - len(found); rest > 0 {
		last := &found[len(found)-1]
		last.More, last.Until = rest, &times[len(times)-1]
	}
	return found, err
}

// whyHeld returns why fires of a trigger do not run at their time, or "".
func whyHeld(app access.App, job dispatcher.Job, t dispatcher.Trigger, at time.Time) string {
	switch {
	case app.Bounds != nil && app.Bounds.Suspended:
		return "the app is suspended"
	case !app.Enabled:
		return "the app is disabled"
	case !job.Enabled:
		return "the job is disabled"
	case !t.Enabled:
		return "disabled"
	case job.Paused && lasts(job.PausedUntil, at):
		return "the job is paused"
	case t.Paused && lasts(t.PausedUntil, at):
		return "paused"
	case t.State == dispatcher.TriggerError:
		return "in error: " + t.Error
	}
	for _, pause := range job.Pauses {
		if lasts(pause.Until, at) {
			return pause.What() + " are paused"
		}
	}
	return ""
}

// lasts reports whether a pause until a time, nil for no end, is active at a time.
func lasts(until *time.Time, at time.Time) bool { return until == nil || until.After(at) }
