package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// logSink hands log lines on from a goroutine of its own, so that anyone who logs never waits for anyone who
// reads the log: a pipe that nobody empties, or a disk that hangs, must not keep fires waiting. What
// does not fit into its buffer is dropped, and counted in the log as soon as that goes on.
type logSink struct {
	lines   chan logLine
	dropped atomic.Int64
}

// logLine is a line to write, or, with reached, a mark that says how far the log has been written.
type logLine struct {
	text    []byte
	reached chan<- struct{}
}

// logBuffer is how many lines may wait.
const logBuffer = 4096

func newLogSink() *logSink { return &logSink{lines: make(chan logLine, logBuffer)} }

// Write takes a line, or drops it. It never waits and never fails.
func (s *logSink) Write(line []byte) (int, error) {
	select {
	case s.lines <- logLine{text: bytes.Clone(line)}:
	default:
		s.dropped.Add(1)
	}
	return len(line), nil
}

// run writes lines to out until ctx ends; a write that is stuck ends with the process. It tells of
// dropped lines by log, which leads to out, too.
func (s *logSink) run(ctx context.Context, out io.Writer, log *slog.Logger) {
	told := int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-s.lines:
			if line.reached != nil {
				close(line.reached)
				continue
			}
			_, _ = out.Write(line.text) // there is no other place to tell it
			if dropped := s.dropped.Load(); dropped > told {
				log.WarnContext(ctx, "log lines were dropped: what reads the log is too slow", "count", dropped-told)
				told = dropped
			}
		}
	}
}

// flush waits until what was written before has reached the log, but not for long.
func (s *logSink) flush(atMost time.Duration) {
	reached := make(chan struct{})
	late := time.After(atMost)
	select {
	case s.lines <- logLine{reached: reached}:
	case <-late:
		return
	}
	select {
	case <-reached:
	case <-late:
	}
}
