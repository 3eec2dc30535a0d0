package node

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// logFlags set the level and the format of the log.
type logFlags struct {
	LogLevel  string `env:"CARILLON_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"Log level: debug, info, warn or error."`
	LogFormat string `env:"CARILLON_LOG_FORMAT" default:"json" enum:"json,text" help:"Log format: json or text."`
}

// NewLogger returns a log with this level and format. Its times are in UTC, so that you can compare
// the logs of several nodes.
func NewLogger(out io.Writer, level, format string) *slog.Logger {
	var parsed slog.Level
	_ = parsed.UnmarshalText([]byte(level)) // the flag is an enum
	options := &slog.HandlerOptions{Level: parsed, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().UTC())
		}
		return a
	}}
	if format == "text" {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}

// logSink writes log lines in its own goroutine, so that no caller waits for the reader of the log:
// a full pipe or a hanging disk must not delay fires. If its buffer is full it drops lines, and
// logs their number as soon as writing continues.
type logSink struct {
	lines   chan logLine
	dropped atomic.Int64
}

// logLine is a line to write. A line with reached is a marker: the channel is closed when the writer gets there.
type logLine struct {
	text    []byte
	reached chan<- struct{}
}

// logBuffer is the number of lines that may wait.
const logBuffer = 4096

func newLogSink() *logSink { return &logSink{lines: make(chan logLine, logBuffer)} }

// Write queues a line or drops it. It never waits and never fails.
func (s *logSink) Write(line []byte) (int, error) {
	select {
	case s.lines <- logLine{text: bytes.Clone(line)}:
	default:
		s.dropped.Add(1)
	}
	return len(line), nil
}

// run writes lines to out until ctx ends; a hanging write ends with the process. It reports dropped
// lines through log, which also writes to out.
func (s *logSink) run(ctx context.Context, out io.Writer, log *slog.Logger) {
	reported := int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-s.lines:
			if line.reached != nil {
				close(line.reached)
				continue
			}
			_, _ = out.Write(line.text) // the error cannot be reported anywhere else
			if dropped := s.dropped.Load(); dropped > reported {
				log.WarnContext(ctx, "log lines dropped: the reader of the log is too slow", "count", dropped-reported)
				reported = dropped
			}
		}
	}
}

// flush waits at most atMost until all earlier lines are written.
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
