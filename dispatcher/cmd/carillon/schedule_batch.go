package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

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

// The longest line, and the most scheduled times of one result.
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

// flushFirst flushes all results before it waits for more input, so that a caller may wait for each result
// before it sends the next query.
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

// runQuery returns the result of one query.
func runQuery(cache *schedule.Cache, line string) string {
	spec, from, n, err := parseQuery(strings.Split(line, "\t"))
	var parsed *schedule.Schedule
	if err == nil {
		parsed, err = cache.Parse(spec)
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
	times := parsed.Between(from, farAway, n)
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

// parseQuery reads the columns of a line. The error is a *input.Problem.
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
