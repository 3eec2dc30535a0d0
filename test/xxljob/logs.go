package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// logs are files, one per run, in a directory for each day of the scheduler's trigger time.
type logs struct {
	dir string
	mu  sync.Mutex
}

// logRequest is the body of /log.
type logRequest struct {
	LogDateTim  int64 `json:"logDateTim"`
	LogID       int64 `json:"logId"`
	FromLineNum int   `json:"fromLineNum"`
}

// logResult is the content of its response.
type logResult struct {
	FromLineNum int    `json:"fromLineNum"`
	ToLineNum   int    `json:"toLineNum"`
	LogContent  string `json:"logContent"`
	IsEnd       bool   `json:"isEnd"`
}

func (l *logs) path(id, at int64) string {
	day := time.UnixMilli(at).UTC().Format(time.DateOnly)
	return filepath.Join(l.dir, day, strconv.FormatInt(id, 10)+".log")
}

func (l *logs) add(id, at int64, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := l.path(id, at)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, err = file.WriteString(line + "\n")
			_ = file.Close()
		}
	}
	if err != nil {
		slog.Error("write log", "err", err)
	}
}

// read returns the lines of a log from a line on. XXL-JOB's own executors never report the end of a log.
func (l *logs) read(of logRequest) reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := os.ReadFile(l.path(of.LogID, of.LogDateTim))
	if err != nil {
		return reply{Code: codeSuccess, Content: logResult{of.FromLineNum, 0, "readLog fail, logFile not exists", true}}
	}
	lines := strings.SplitAfter(string(text), "\n")
	lines = lines[:len(lines)-1] // after the last line end
	from := min(max(of.FromLineNum, 1), len(lines)+1)
	return reply{Code: codeSuccess, Content: logResult{of.FromLineNum, len(lines), strings.Join(lines[from-1:], ""), false}}
}
