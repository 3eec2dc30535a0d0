package input

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Problem is one thing wrong with an input.
type Problem struct {
	// Path is a JSON pointer (RFC 6901) to the wrong value; empty means the input as a whole.
	Path string `json:"path"`
	// Code is one of Codes.
	Code string `json:"code" schema:"Code"`
	// Message names the value, the rule and the remedy. It never contains a secret.
	Message string `json:"message"`
}

// Error returns path and message.
func (f *Problem) Error() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Refuse returns a problem with the input as a whole, with a formatted message.
func Refuse(code, format string, args ...any) error {
	return &Problem{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Problems are all problems of one input. As an error it is never empty.
type Problems []Problem

// Error joins the problems.
func (f Problems) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "; ")
}

// Add appends a problem with a formatted message.
func (f *Problems) Add(path, code, format string, args ...any) {
	*f = append(*f, Problem{Path: path, Code: code, Message: fmt.Sprintf(format, args...)})
}

// AddError appends the Problem or Problems in err, under path.
func (f *Problems) AddError(path string, err error) {
	var one *Problem
	var many Problems
	switch {
	case err == nil:
	case errors.As(err, &one):
		*f = append(*f, Problem{Path: path + one.Path, Code: one.Code, Message: one.Message})
	case errors.As(err, &many):
		for _, problem := range many {
			*f = append(*f, Problem{Path: path + problem.Path, Code: problem.Code, Message: problem.Message})
		}
	default:
		f.Add(path, CodeInternal, "%v", err)
	}
}

// Err returns f as an error, nil if it is empty.
func (f Problems) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Echo quotes a value for a message: escaped, and cut to 64 characters.
func Echo(value string) string { return strconv.Quote(Clip(value)) }

// Pointer joins tokens to a JSON pointer, escaped by RFC 6901. A token of more than 64 characters is cut, as Echo
// cuts values, because names are shorter.
func Pointer(tokens ...string) string {
	var b strings.Builder
	for _, token := range tokens {
		b.WriteByte('/')
		b.WriteString(pointerEscapes.Replace(Clip(token)))
	}
	return b.String()
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// Clip cuts text to 64 characters.
func Clip(text string) string {
	const most = 64
	n := 0
	for i := range text {
		if n == most {
			return text[:i] + "…"
		}
		n++
	}
	return text
}
