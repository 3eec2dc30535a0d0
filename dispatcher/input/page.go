package input

import (
	"regexp"
	"strings"
	"time"
)

// Change is the author of a change, and its conditions.
type Change struct {
	// Actor is the name of the API token, "system" or "command line". It goes into the audit log, with the id of the
	// token, the address of the caller and the id of the request, each empty if there is none.
	Actor                       string
	TokenID, Address, RequestID string
	// Traceparent is the trace context of the request, as ParseTraceparent reads it; empty if it has none.
	Traceparent string
	// Operator is true if the change may set the bounds of an app.
	Operator bool
	// IfRevision refuses with ErrPrecondition unless it is the current revision; 0 means no condition.
	IfRevision int64
	// IfAbsent refuses with ErrPrecondition if the thing exists.
	IfAbsent bool
	// Reason comes from the author. A pause keeps it, and Until, when it ends by itself; nil if it does not.
	Reason string
	Until  *time.Time
	Now    time.Time
}

// Page asks for one page of a list.
type Page struct {
	// Limit is the maximum number of items, 1 to 1000.
	Limit int
	// Cursor is the key of the last item of the previous page; empty for the first page.
	Cursor string
	// Labels selects the jobs that have all of them; nil means every job. Other lists ignore it.
	Labels Labels
	// Origin selects the job with that Origin, whatever its name is now; empty means every job. Other lists ignore it.
	Origin string
	// Bytes ends a page of jobs, calendars or groups after the item that reaches about that many bytes, with
	// ErrPageBytes if there are more; 0 means no bound.
	Bytes int
}

// Labels describe a node (zone=a, disk=ssd), the requirements of a job for its nodes, and a job (team=payments).
type Labels map[string]string

// MaxLabels bounds the labels of a node and of a job.
const MaxLabels = 16

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Check reports the problems of labels under path.
func (l Labels) Check(problems *Problems, path string) {
	if len(l) > MaxLabels {
		problems.Add(path, CodeTooMany, "there are %d labels; the maximum is %d", len(l), MaxLabels)
		return
	}
	for _, key := range SortedKeys(l) {
		for _, text := range []string{key, l[key]} {
			if !labelPattern.MatchString(text) {
				problems.Add(path+Pointer(key), CodeLabelFormat,
					"label %s=%s: names and values are 1 to 63 letters, digits, _, . and -, beginning with a letter or digit", Echo(key), Echo(l[key]))
				break
			}
		}
	}
}

// Validate returns everything wrong with labels, as Problems, or nil.
func (l Labels) Validate() error {
	var problems Problems
	l.Check(&problems, "")
	return problems.Err()
}

// String writes labels as name=value, joined with commas, in order: equal labels are equal texts.
func (l Labels) String() string { return strings.Join(l.Pairs(), ",") }

// Pairs returns labels as name=value, in order.
func (l Labels) Pairs() []string {
	pairs := make([]string, 0, len(l))
	for _, key := range SortedKeys(l) {
		pairs = append(pairs, key+"="+l[key])
	}
	return pairs
}

// ParseLabels is the inverse of Labels.String; an empty text has no labels.
func ParseLabels(text string) Labels {
	if text == "" {
		return nil
	}
	l := Labels{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		l[key] = value
	}
	return l
}

// Have reports whether l has all required labels.
func (l Labels) Have(required Labels) bool {
	for key, value := range required {
		if l[key] != value {
			return false
		}
	}
	return true
}
