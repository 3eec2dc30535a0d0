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
func (r *request) decode(into any) dispatcher.Faults {
	var faults dispatcher.Faults
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		faults.Add("", dispatcher.CodeMediaType, "Content-Type %s is not application/json", dispatcher.Echo(r.Header.Get("Content-Type")))
		return faults
	}
	if charset, given := parameters["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		faults.Add("", dispatcher.CodeMediaType, "charset %s is not served; JSON is UTF-8", dispatcher.Echo(charset))
		return faults
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		faults.Add("", dispatcher.CodeMediaType, "Content-Encoding %s is not served; send the body as it is", dispatcher.Echo(encoding))
		return faults
	}
	text, faults := r.read()
	if len(faults) > 0 {
		return faults
	}
	return decode(text, into)
}

// decodeNothing refuses a body that says something, for routes that take none: what it says
// would be passed over in silence.
func (r *request) decodeNothing() error {
	text, faults := r.read()
	if len(faults) == 0 && len(bytes.TrimSpace(text)) > 0 {
		faults = decode(text, &struct{}{})
	}
	return faults.Err()
}

func (r *request) read() ([]byte, dispatcher.Faults) {
	var faults dispatcher.Faults
	text, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		faults.Add("", dispatcher.CodePayloadTooLarge, "body has more than %d bytes", tooLarge.Limit)
	case err != nil:
		faults.Add("", dispatcher.CodeJSONSyntax, "body ended at offset %d before it was complete", len(text))
	}
	return text, faults
}

// mustMatch reports a name in the body that is not the one in the path. A name that is no
// name at all is left to Validate.
func mustMatch(faults *dispatcher.Faults, path, inBody, inPath string) {
	if inBody != inPath && validName(inBody) {
		faults.Add(path, dispatcher.CodeNameMismatch, "name %s is not the one in the path, %s; names cannot change",
			dispatcher.Echo(inBody), dispatcher.Echo(inPath))
	}
}

// addMeaning adds what Validate found to the faults of form, but for what merely follows
// from a value that could not be read.
func addMeaning(form *dispatcher.Faults, err error) {
	unread := *form
	var meaning dispatcher.Faults
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
