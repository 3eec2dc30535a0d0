// Package decode reads the JSON of bodies, and reports all problems of a body together.
//
// encoding/json ignores unknown fields and stops at the first error. This package is stricter: it reports unknown
// fields, duplicate fields, numbers in quotes, and (AddInvalid) the problems that Validate finds in the decoded fields.
// Read-only fields are accepted and ignored, so that you can edit the result of a GET and PUT it. It walks over the
// text (scan.go) and copies only values that a field takes, so a hostile body costs little more than its size.
package decode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// JSON fills into, a pointer to a struct, from a JSON text. It returns every problem; a field with one keeps its
// default. Messages never contain values, which may be secrets. It stops when the time of ctx is over.
func JSON(ctx context.Context, text []byte, into any) input.Problems {
	raw, err := document(text)
	if err != nil {
		return input.Problems{*err}
	}
	d := newDecoder(text)
	d.over = ctx.Err
	return d.read(raw, into)
}

// Part fills into from a part of a valid text, and reports whether all of it could be read.
func Part(raw json.RawMessage, into any) bool {
	return newDecoder(raw).fill(reflect.ValueOf(into).Elem(), raw, nil)
}

func newDecoder(text []byte) *decoder {
	d := &decoder{most: maxElements, room: min(Factor*len(text)+floor, maxDecoded), fields: map[reflect.Type]map[string]Field{}}
	if len(text) > MaxBody {
		d.most = MaxImport / 64 // an app has any number of jobs; the smallest takes more bytes
	}
	return d
}

// The largest bodies, in bytes.
const (
	// MaxBody fits the largest payload with its escapes, and a hundred triggers.
	MaxBody = 1 << 20
	// MaxImport fits some thousand jobs.
	MaxImport = 64 << 20
)

// maxElements is how many elements a list or a map of a body may have: no field permits as many, and each takes far
// more memory than its bytes.
const maxElements = 10_000

// The memory that a decoded body may take, apart from its own bytes and its texts: Factor times its size plus floor,
// but at most maxDecoded. A list of empty objects would take hundreds of times its size. With its texts, and with
// temporary memory, a body takes 20 times its size.
const (
	Factor     = 16
	floor      = 1 << 20
	maxDecoded = 128 << 20
)

// take counts bytes that a value is about to take in memory. If the body has no room for them, it reports that once,
// and decoding stops.
func (d *decoder) take(bytes int, at *pointer) bool {
	if d.room < 0 {
		return false
	}
	if d.room -= bytes; d.room < 0 {
		d.add(at, input.CodePayloadTooLarge, "the values of the body up to here take more memory than a body of its size may; "+
			"leave out empty elements, or split the body")
		return false
	}
	return true
}

// read fills into from one JSON value.
func (d *decoder) read(raw json.RawMessage, into any) input.Problems {
	if d.full() { // a long text may take more than the time
		return d.problems
	}
	d.problems.AddError("", input.CheckJSONText(raw, MaxProblems+1))
	d.checkKeys(raw)
	if raw[0] != '{' {
		d.wrongType(nil, "an object", raw)
		return d.problems
	}
	d.fill(reflect.ValueOf(into).Elem(), raw, nil)
	return d.problems
}

// document returns the one JSON value that text holds.
func document(text []byte) (json.RawMessage, *input.Problem) {
	fail := func(code string, offset int64, what string) (json.RawMessage, *input.Problem) {
		return nil, &input.Problem{Code: code, Message: fmt.Sprintf("body is not JSON at offset %d: %s", offset, what)}
	}
	syntax := func(offset int64, what string) (json.RawMessage, *input.Problem) {
		return fail(input.CodeJSONSyntax, offset, what)
	}
	for at := 0; at < len(text); {
		r, width := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && width == 1 {
			return fail(input.CodeJSONUTF8, int64(at), "invalid UTF-8")
		}
		at += width
	}
	// Nesting far deeper than any field permits is refused before any recursion into it.
	if depth := input.JSONDepth(text); depth > maxDepth {
		return nil, &input.Problem{Code: input.CodeJSONDepth, Message: fmt.Sprintf(
			"body is nested %d deep; the maximum is %d, and %d for a payload", depth, maxDepth, input.MaxPayloadDepth)}
	}
	if json.Valid(text) {
		return bytes.Trim(text, " \t\r\n"), nil
	}
	dec := json.NewDecoder(bytes.NewReader(text)) // it finds the position of the error
	var raw json.RawMessage
	err := dec.Decode(&raw)
	var wrong *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		return syntax(0, "it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return syntax(int64(len(text)), "it ends too early")
	case errors.As(err, &wrong):
		return syntax(wrong.Offset, wrong.Error())
	case err != nil:
		return syntax(dec.InputOffset(), err.Error())
	}
	rest := bytes.TrimLeft(text[dec.InputOffset():], " \t\r\n")
	return nil, &input.Problem{Code: input.CodeJSONTrailing, Message: fmt.Sprintf(
		"body continues after its JSON value at offset %d", len(text)-len(rest))}
}

// maxDepth is how deep a body may be nested.
const maxDepth = 100

// pointer is a path into the body. It is only written out for a problem.
type pointer struct {
	parent *pointer
	// key is that of a member, as written in the text; nil for an element.
	key   json.RawMessage
	index int
}

func (p *pointer) String() string {
	var tokens []string
	for ; p != nil; p = p.parent {
		token := strconv.Itoa(p.index)
		if p.key != nil {
			token = string(unquote(p.key))
		}
		tokens = append(tokens, token)
	}
	slices.Reverse(tokens)
	var path strings.Builder
	for _, token := range tokens {
		if path.WriteString(input.Pointer(token)); path.Len() > maxPath {
			break
		}
	}
	return cutPath(path.String())
}

// maxPath is the longest path of a problem in bytes. A longer one is cut, and ends in an ellipsis.
const maxPath = 256

func cutPath(path string) string {
	if len(path) <= maxPath {
		return path
	}
	end := maxPath
	for !utf8.RuneStart(path[end]) {
		end--
	}
	return path[:end] + "…"
}

// decoder collects the problems of one body.
type decoder struct {
	problems input.Problems
	// most is how many elements a list or map may have.
	most int
	// room is how many bytes of memory are left for values; below 0: a value did not fit.
	room int
	// over returns an error once no caller waits for the result; may be nil.
	over func() error
	// steps counts the calls of full.
	steps int
	// fields are those of the structs so far, by their JSON names.
	fields map[reflect.Type]map[string]Field
	// work counts bytes read and written, so that tests see the cost of a body without measuring time.
	work int
}

// stepsBetween is the number of decoding steps between two checks of the time; a check takes as long as many steps.
const stepsBetween = 256

// full reports whether decoding is over: there are more problems than a response lists, no room for more values, or no
// caller waits for them.
func (d *decoder) full() bool {
	if d.steps++; d.steps%stepsBetween == 1 && d.over != nil && d.room >= 0 && d.over() != nil {
		d.room = -1
		d.add(nil, input.CodeRequestTimeout, "the time of the request was over before its body was read; send less at once")
	}
	return len(d.problems) > MaxProblems || d.room < 0
}

func (d *decoder) add(at *pointer, code, format string, args ...any) {
	if len(d.problems) > MaxProblems {
		return
	}
	path := at.String()
	d.work += len(path)
	d.problems.Add(path, code, format, args...)
}

func (d *decoder) wrongType(at *pointer, want string, raw json.RawMessage) {
	d.add(at, input.CodeJSONType, "expected %s, found %s", want, kindOf(raw))
}

// kindOf names the type of a JSON value.
func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// MaxProblems keeps the response to a hostile body small.
const MaxProblems = 100

// Bounded returns problems as a response lists them.
func Bounded(problems input.Problems) input.Problems {
	all := slices.Clone(problems[:min(len(problems), MaxProblems)])
	for i := range all {
		all[i].Path = cutPath(all[i].Path)
	}
	if len(problems) > MaxProblems {
		all.Add("", input.CodeTooMany, "there are more problems than the %d listed", MaxProblems)
	}
	return all
}

// AddInvalid adds the problems that Validate found to those of decoding. It leaves out a problem at or below a value
// that could not be decoded: that is only a consequence. A text with NUL was decoded.
func AddInvalid(problems *input.Problems, err error) {
	undecoded := *problems
	var invalid input.Problems
	invalid.AddError("", err)
	for _, one := range invalid {
		if !slices.ContainsFunc(undecoded, func(u input.Problem) bool {
			return u.Code != input.CodeStringNUL && (one.Path == u.Path || strings.HasPrefix(one.Path, u.Path+"/"))
		}) {
			*problems = append(*problems, one)
		}
	}
}
