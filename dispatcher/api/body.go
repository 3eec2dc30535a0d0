package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// decode reads the body of r into into, a pointer to a struct, and returns every fault.
func (r *request) decode(into any) dispatcher.Problems {
	var problems dispatcher.Problems
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		problems.Add("", dispatcher.CodeMediaType, "Content-Type %s is not application/json", dispatcher.Echo(r.Header.Get("Content-Type")))
		return problems
	}
	if charset, given := parameters["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		problems.Add("", dispatcher.CodeMediaType, "charset %s is not served; JSON is UTF-8", dispatcher.Echo(charset))
		return problems
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		problems.Add("", dispatcher.CodeMediaType, "Content-Encoding %s is not served; send the body as it is", dispatcher.Echo(encoding))
		return problems
	}
	text, problems := r.read()
	if len(problems) > 0 {
		return problems
	}
	return decode(text, into)
}

// decodeNothing refuses a body that says something, for routes that take none: what it says
// would be passed over in silence.
func (r *request) decodeNothing() error {
	text, problems := r.read()
	if len(problems) == 0 && len(bytes.TrimSpace(text)) > 0 {
		problems = decode(text, &struct{}{})
	}
	return problems.Err()
}

func (r *request) read() ([]byte, dispatcher.Problems) {
	var problems dispatcher.Problems
	text, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		problems.Add("", dispatcher.CodePayloadTooLarge, "body has more than %d bytes", tooLarge.Limit)
	case err != nil:
		problems.Add("", dispatcher.CodeJSONSyntax, "body ended at offset %d before it was complete", len(text))
	}
	return text, problems
}

// mustMatch reports a name in the body that is not the one in the path. A name that is no
// name at all is left to Validate.
func mustMatch(problems *dispatcher.Problems, path, inBody, inPath string) {
	if inBody != inPath && validName(inBody) {
		problems.Add(path, dispatcher.CodeNameMismatch, "name %s is not the one in the path, %s; names cannot change",
			dispatcher.Echo(inBody), dispatcher.Echo(inPath))
	}
}

// addMeaning adds what Validate found to the faults of form, but for what merely follows
// from a value that could not be read.
func addMeaning(form *dispatcher.Problems, err error) {
	unread := *form
	var meaning dispatcher.Problems
	meaning.AddError("", err)
	for _, m := range meaning {
		follows := false
		for _, f := range unread {
			follows = follows || m.Path == f.Path || strings.HasPrefix(m.Path, f.Path+"/")
		}
		if !follows {
			*form = append(*form, m)
		}
	}
}
