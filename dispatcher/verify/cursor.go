package verify

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// ErrCursor says that a cursor is not one of Page.Next.
var ErrCursor = errors.New("not a cursor of this list")

// cursor is where a page begins: after a job, or within it at a time.
type cursor struct {
	job    string
	within bool
	at     time.Time
}

// String writes JOB, or JOB@MS within a job.
func (c cursor) String() string {
	if !c.within {
		return c.job
	}
	return c.job + "@" + strconv.FormatInt(c.at.UnixMilli(), 10)
}

func parseCursor(text string) (cursor, error) {
	if text == "" {
		return cursor{}, nil
	}
	job, ms, within := strings.Cut(text, "@")
	var problems input.Problems
	if input.CheckName(&problems, "", job); len(problems) > 0 {
		return cursor{}, ErrCursor
	}
	if !within {
		return cursor{job: job}, nil
	}
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n < 0 {
		return cursor{}, ErrCursor
	}
	return cursor{job: job, within: true, at: time.UnixMilli(n).UTC()}, nil
}

// IsCursor says whether text is a cursor of Page.Next.
func IsCursor(text string) bool {
	_, err := parseCursor(text)
	return err == nil
}
