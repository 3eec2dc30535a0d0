package limit

import (
	"context"
	"io"
	"net/http"
	"time"
)

// A client has to send a body, and to read a response, at least at transferRate. It may begin transferGrace late,
// which also covers pauses, and has bodyTime and responseTime in total.
const (
	transferRate  = 64 << 10 // bytes a second
	transferGrace = 5 * time.Second
	bodyTime      = 12 * time.Second
	responseTime  = 30 * time.Second
	// transferPart is how much of a response is written under one deadline.
	transferPart = 64 << 10 // bytes
)

// Transfers serves next to clients of any speed: a body and a response that take too long end with an error,
// os.ErrDeadlineExceeded. It never waits for a body that next has not read to its end: it closes the connection
// instead. While it waits for the client, the Listener may close the connection to make room for another; see Hold.
func Transfers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if transferOf(r.Context()) != nil { // a request within the process, for another one that is already served here
			next.ServeHTTP(w, r)
			return
		}
		conn, _ := r.Context().Value(connKey{}).(*conn)
		t := &transfer{conn: conn, control: http.NewResponseController(w), major: r.ProtoMajor, read: r.ContentLength == 0 || r.Body == nil}
		conn.serve(1)
		defer conn.serve(-1)
		r = r.WithContext(context.WithValue(r.Context(), transferKey{}, t))
		if !t.read {
			r.Body = &body{ReadCloser: r.Body, transfer: t}
		}
		out := &writer{ResponseWriter: w, transfer: t}
		next.ServeHTTP(out, r)
		if !out.begun { // the server writes the header now
			out.WriteHeader(http.StatusOK)
		}
	})
}

// Hold keeps the connection of a request while the node works on the request, until release is called: the Listener
// does not close it to make room. Reading the body and writing the response are not work.
func Hold(ctx context.Context) (release func()) {
	t := transferOf(ctx)
	if t == nil {
		return func() {}
	}
	t.hold(1)
	return func() { t.hold(-1) }
}

type (
	transferKey struct{}
	connKey     struct{}
)

func transferOf(ctx context.Context) *transfer {
	t, _ := ctx.Value(transferKey{}).(*transfer)
	return t
}

// transfer is the way of one request in and of its response out. One goroutine serves it.
type transfer struct {
	conn    *conn // nil if it does not come from a Listener
	control *http.ResponseController
	major   int // of the version of HTTP
	// read is true when the body has been read to its end.
	read bool
	// held is how often the connection is held for this request.
	held int
}

func (t *transfer) hold(by int) {
	t.held += by
	t.conn.hold(by)
}

// await waits for the client; meanwhile the connection is not held.
func (t *transfer) await(move func() (int, error)) (int, error) {
	t.conn.hold(-t.held)
	defer t.conn.hold(t.held)
	return move()
}

// refuse keeps the server from waiting for the rest of a body that was not read.
func (t *transfer) refuse(header http.Header) {
	if t.read {
		return
	}
	if t.major == 1 { // later versions reset the stream
		header.Set("Connection", "close")
	}
	_ = t.control.SetReadDeadline(time.Unix(1, 0)) // not every writer supports it
}

// deadline returns when a transfer of bytes that began at an instant must end.
func deadline(began time.Time, bytes int64, most time.Duration) time.Time {
	return began.Add(min(most, transferGrace+time.Duration(bytes)*time.Second/transferRate))
}

// body is the body of a request.
type body struct {
	io.ReadCloser
	*transfer
	began time.Time
	bytes int64
}

// Read reads received bytes, or waits for more.
func (b *body) Read(into []byte) (n int, err error) {
	if b.began.IsZero() {
		b.began = clock()
	}
	_ = b.control.SetReadDeadline(deadline(b.began, b.bytes, bodyTime)) // not every writer supports it
	n, err = b.await(func() (int, error) { return b.ReadCloser.Read(into) })
	b.bytes += int64(n)
	if err == io.EOF { //nolint:errorlint // as io.Reader has it
		b.read = true
		_ = b.control.SetReadDeadline(time.Time{}) // the server waits for the client to leave, as long as the work takes
	}
	return n, err
}

// writer writes the response to a request.
type writer struct {
	http.ResponseWriter
	*transfer
	begun  bool
	waited time.Duration // for the client
	bytes  int64
}

// Unwrap returns the writer of the server.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the response.
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusOK && !w.begun {
		w.begun = true
		w.refuse(w.Header())
		_ = w.control.SetWriteDeadline(deadline(clock(), 0, responseTime)) // not every writer supports it
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes part by part, each with its deadline.
func (w *writer) Write(from []byte) (n int, err error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	for {
		part := from[n:min(len(from), n+transferPart)]
		w.bytes += int64(len(part))
		start := clock()
		// A handler may pause between its writes, which is not the client's time.
		_ = w.control.SetWriteDeadline(deadline(start.Add(-w.waited), w.bytes, responseTime)) // not every writer supports it
		written, err := w.await(func() (int, error) { return w.ResponseWriter.Write(part) })
		w.waited += clock().Sub(start)
		if n += written; err != nil || n == len(from) {
			return n, err
		}
	}
}

func clock() time.Time { return time.Now() } //nolint:forbidigo // how long clients take, and the order of connections
