package gate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
)

// Decode reads the body of r into into, a pointer to a struct, and returns every problem.
func (r *Request) Decode(into any) input.Problems {
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
	text, problems := r.Text()
	if len(problems) > 0 {
		return problems
	}
	return decode.JSON(r.Context(), text, into)
}

// DecodeIfAny is Decode for a route with an optional body.
func (r *Request) DecodeIfAny(into any) input.Problems {
	text, problems := r.Text()
	if len(problems) > 0 || len(bytes.TrimSpace(text)) == 0 {
		return problems
	}
	return r.Decode(into)
}

// expectNoBody refuses a body on a route that takes none, instead of ignoring it silently. An empty object is accepted.
func expectNoBody(r *Request) error {
	if r.route.Method != http.MethodPost || r.route.Body {
		return nil
	}
	text, problems := r.Text()
	if len(problems) == 0 && len(bytes.TrimSpace(text)) > 0 {
		problems = decode.JSON(r.Context(), text, &struct{}{})
	}
	return problems.Err()
}

// Text returns the received part of the body, and the reason if that is not all.
func (r *Request) Text() ([]byte, input.Problems) {
	var problems input.Problems
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(r.body.err, &tooLarge):
		problems.Add("", input.CodePayloadTooLarge, "body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(r.body.err, os.ErrDeadlineExceeded):
		problems.Add("", input.CodeRequestTimeout, "the body did not come in time, only %d bytes of it; send it at once, or over a "+
			"faster connection", len(r.body.text))
	case r.body.err != nil:
		problems.Add("", input.CodeJSONSyntax, "body ended at offset %d before it was complete", len(r.body.text))
	}
	return r.body.text, problems
}

// firstPart is how much of a body is read before memory is taken for it: places bound the number of bodies.
const firstPart = 64 << 10 // bytes

// body is the received part of a body.
type body struct {
	text []byte
	err  error // why it is not complete
	// arrived gives back the memory that was taken while it was read; may be nil.
	arrived func()
}

// settle gives back the memory that was taken while the body was read.
func (b *body) settle() {
	if b.arrived != nil {
		b.arrived()
		b.arrived = nil
	}
}

// readText reads the body of r, and takes memory for it as it arrives: a client that announces a large body and sends
// little of it blocks no others. That memory is given back once there is some for the whole request.
func (g *Gate) readText(r *Request) error {
	if r.anonymous() || !slices.Contains([]string{http.MethodPut, http.MethodPost, http.MethodPatch}, r.route.Method) {
		return nil
	}
	var text bytes.Buffer
	for part := int64(firstPart); ; part *= 2 {
		_, err := io.CopyN(&text, r.Body, part-int64(text.Len()))
		r.body.text, r.body.err = text.Bytes(), err
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // the server has cancelled the request
			_, problems := r.Text()
			return problems
		case errors.Is(err, io.EOF):
			r.body.err = nil
			return nil
		case err != nil:
			return nil //nolint:nilerr // the route tells of it, next to other problems
		}
		r.body.settle()                                                                   // a caller without any may take all of it
		if r.body.arrived, err = g.memoryFrom(g.limits.arriving, r, 4*part); err != nil { // for twice as much, in a buffer that grows
			return err
		}
	}
}

// PageBytes is the size at which a page ends early.
const PageBytes = 4 << 20

// The memory of requests, by estimate: a page while it is read, decoded and written, a whole app, and a body as bytes,
// decoded, and as stored.
const (
	PageMemory   = 4 * PageBytes
	ExportMemory = 64 << 20
	bodyFactor   = 4
	// An import has its bytes, in a buffer that grew, its texts, and its decoded form.
	importFactor = 4 + decode.Factor
)

// takeMemory waits until there is memory for r, whose body is here. It is freed at the end of the request.
func (g *Gate) takeMemory(r *Request) error {
	bytes := bodyFactor * int64(len(r.body.text)) // an estimate
	switch rt := r.route; {
	case rt.Memory > 0:
		bytes = rt.Memory
	case slices.Contains(rt.Query, "limit"):
		bytes = PageMemory
	case rt.Large:
		bytes = importFactor * int64(len(r.body.text))
	}
	if bytes == 0 {
		return nil
	}
	release, err := g.memoryFrom(g.limits.memory, r, bytes)
	if err == nil {
		r.releases = append(r.releases, release)
	}
	return err
}

// memoryFrom waits until a pool has memory for r.
func (g *Gate) memoryFrom(pool *limit.Memory, r *Request, bytes int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), memoryPatience)
	defer cancel()
	release, err = pool.Take(ctx, cmp.Or(r.boundApp(), "token "+r.Token.Name), bytes)
	if err != nil {
		return nil, g.limited(r, limitedMemory, "too many large requests are under way on this node", memoryPatience)
	}
	return release, nil
}
