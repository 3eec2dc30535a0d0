package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// runLogCommand prints the log of a run of XXL-JOB's executors.
type runLogCommand struct {
	apiFlags
	ID      string `arg:"" help:"Id of the run."`
	Attempt int    `help:"Number of the attempt. Default: the latest."`
	From    int    `help:"First line to print, counted from 1." default:"1"`
	Follow  bool   `help:"Print further lines until the run ends."`
}

// logPause is how often a log that is followed is read.
const logPause = time.Second

// Run prints the log, as it is or until the run ends.
func (l *runLogCommand) Run(ctx context.Context, c console) error {
	api, err := l.client(ctx)
	if err != nil {
		return err
	}
	for from := l.From; ; {
		log, err := api.RunLog(ctx, l.ID, l.Attempt, from)
		if err != nil {
			return err
		}
		if err := printLog(c.out, log); err != nil {
			return err
		}
		from = max(from, log.ToLine+1)
		if !l.Follow {
			return nil
		}
		if log.ToLine < log.FromLine { // no line is left; its run may have ended
			run, err := api.Run(ctx, l.ID)
			if err != nil || hasEnded(run) {
				return err
			}
		}
		if pause(ctx, logPause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// printLog prints the lines of a log, so that none of them controls the terminal.
func printLog(out io.Writer, log target.ExecutorLog) error {
	for line := range strings.Lines(log.Content) {
		if _, err := fmt.Fprintln(out, plain(strings.TrimRight(line, "\r\n"))); err != nil {
			return err
		}
	}
	return nil
}
