package input

import (
	"regexp"
	"strings"
)

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
