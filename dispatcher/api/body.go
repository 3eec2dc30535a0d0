package api

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// decode reads the body of r into into, a pointer to a struct, and returns every problem.
func (r *request) decode(into any) dispatcher.Problems {
	var problems dispatcher.Problems
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		problems.Add("", dispatcher.CodeMediaType, "Content-Type %s is not application/json",
			dispatcher.Echo(r.Header.Get("Content-Type")))
		return problems
	}
	if charset, given := parameters["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		problems.Add("", dispatcher.CodeMediaType, "charset %s is not supported; JSON is UTF-8", dispatcher.Echo(charset))
		return problems
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		problems.Add("", dispatcher.CodeMediaType, "Content-Encoding %s is not supported; send the body without it",
			dispatcher.Echo(encoding))
		return problems
	}
	text, problems := r.readBody()
	if len(problems) > 0 {
		return problems
	}
	return decode(text, into)
}

// decodeIfAny is decode for a route whose body may be left out.
func (r *request) decodeIfAny(into any) dispatcher.Problems {
	text, problems := r.readBody()
	if len(problems) > 0 || len(bytes.TrimSpace(text)) == 0 {
		return problems
	}
	return r.decode(into)
}

// expectNoBody refuses a body on a route that takes none, instead of ignoring it silently. An empty
// object is accepted.
func (r *request) expectNoBody() error {
	text, problems := r.readBody()
	if len(problems) == 0 && len(bytes.TrimSpace(text)) > 0 {
		problems = decode(text, &struct{}{})
	}
	return problems.Err()
}

func (r *request) readBody() ([]byte, dispatcher.Problems) {
	var problems dispatcher.Problems
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(r.textErr, &tooLarge):
		problems.Add("", dispatcher.CodePayloadTooLarge, "body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(r.textErr, os.ErrDeadlineExceeded):
		problems.Add("", dispatcher.CodeRequestTimeout, "the body did not come in time, only %d bytes of it; send it at once, or over a "+
			"faster connection", len(r.text))
	case r.textErr != nil:
		problems.Add("", dispatcher.CodeJSONSyntax, "body ended at offset %d before it was complete", len(r.text))
	}
	return r.text, problems
}

// mustMatch reports a name in the body that differs from the one in the path. Validate reports an
// invalid name.
func mustMatch(problems *dispatcher.Problems, path, inBody, inPath string) {
	if inBody != inPath && validName(inBody) {
		problems.Add(path, dispatcher.CodeNameMismatch, "name %s differs from the one in the path, %s; a PUT renames nothing",
			dispatcher.Echo(inBody), dispatcher.Echo(inPath))
	}
}

// addInvalid adds the problems that Validate found to those of decoding. It leaves out a problem at
// or below a value that could not be decoded: that is only a consequence. A text with NUL was decoded.
func addInvalid(problems *dispatcher.Problems, err error) {
	undecoded := *problems
	var invalid dispatcher.Problems
	invalid.AddError("", err)
	for _, one := range invalid {
		if !slices.ContainsFunc(undecoded, func(u dispatcher.Problem) bool {
			return u.Code != dispatcher.CodeStringNUL && (one.Path == u.Path || strings.HasPrefix(one.Path, u.Path+"/"))
		}) {
			*problems = append(*problems, one)
		}
	}
}
