package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// decode reads the body of r into into, a pointer to a struct, and returns every problem.
func (r *request) decode(into any) input.Problems {
	var problems input.Problems
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		problems.Add("", input.CodeMediaType, "Content-Type %s is not application/json",
			input.Echo(r.Header.Get("Content-Type")))
		return problems
	}
	if charset, given := parameters["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		problems.Add("", input.CodeMediaType, "charset %s is not supported; JSON is UTF-8", input.Echo(charset))
		return problems
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		problems.Add("", input.CodeMediaType, "Content-Encoding %s is not supported; send the body without it",
			input.Echo(encoding))
		return problems
	}
	text, problems := r.readBody()
	if len(problems) > 0 {
		return problems
	}
	return decode.JSON(r.Context(), text, into)
}

// decodeIfAny is decode for a route whose body may be left out.
func (r *request) decodeIfAny(into any) input.Problems {
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
		problems = decode.JSON(r.Context(), text, &struct{}{})
	}
	return problems.Err()
}

func (r *request) readBody() ([]byte, input.Problems) {
	var problems input.Problems
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(r.textErr, &tooLarge):
		problems.Add("", input.CodePayloadTooLarge, "body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(r.textErr, os.ErrDeadlineExceeded):
		problems.Add("", input.CodeRequestTimeout, "the body did not come in time, only %d bytes of it; send it at once, or over a "+
			"faster connection", len(r.text))
	case r.textErr != nil:
		problems.Add("", input.CodeJSONSyntax, "body ended at offset %d before it was complete", len(r.text))
	}
	return r.text, problems
}

// firstPart is how much of a body is read without memory for it: there are places for few bodies.
const firstPart = 64 << 10 // bytes

// readText reads the body of r, and takes memory for it as it comes: a client that announces a large body and sends little of it
// keeps others from nothing. arrived gives the memory back, once there is some for the whole request.
func (a *API) readText(r *request) (arrived func(), err error) {
	arrived = func() {}
	var text bytes.Buffer
	for part := int64(firstPart); ; part *= 2 {
		_, r.textErr = io.CopyN(&text, r.Body, part-int64(text.Len()))
		r.text = text.Bytes()
		switch {
		case errors.Is(r.textErr, os.ErrDeadlineExceeded): // the server has cancelled the request
			arrived()
			_, problems := r.readBody()
			return nil, problems
		case errors.Is(r.textErr, io.EOF):
			r.textErr = nil
			return arrived, nil
		case r.textErr != nil:
			return arrived, nil //nolint:nilerr // the route tells of it, next to other problems
		}
		arrived()                                                                  // a caller that has none may take as much as is free
		if arrived, err = a.memoryFrom(a.limits.arriving, r, 4*part); err != nil { // for twice as much, in a buffer that grows
			return nil, err
		}
	}
}

// mustMatch reports a name in the body that differs from the one in the path. Validate reports an
// invalid name.
func mustMatch(problems *input.Problems, path, inBody, inPath string) {
	if inBody != inPath && input.IsName(inBody) {
		problems.Add(path, input.CodeNameMismatch, "name %s differs from the one in the path, %s; a PUT renames nothing",
			input.Echo(inBody), input.Echo(inPath))
	}
}
