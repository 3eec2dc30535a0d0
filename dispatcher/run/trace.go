package run

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

// TraceID is the id of a trace, which has all attempts of a run, including those of its shards. It derives from the
// installation and the id of the run, so nodes that attempt a run one after the other need not exchange it, and
// installations with the same jobs have different traces.
type TraceID [16]byte

// SpanID is the id of an attempt in its trace.
type SpanID [8]byte

// String returns the id as W3C Trace Context writes it.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// String returns the id as W3C Trace Context writes it.
func (s SpanID) String() string { return hex.EncodeToString(s[:]) }

// TraceOf returns the trace of a run of an installation.
func TraceOf(installation, run string) (trace TraceID) {
	parent, _, _ := strings.Cut(run, "-") // a shard has the trace of its broadcast
	sum := sha256.Sum256([]byte("trace/" + installation + "/" + parent))
	copy(trace[:], sum[:])
	return trace
}

// SpanOf returns the span of an attempt of a run of an installation.
func SpanOf(installation, run string, attempt int) (span SpanID) {
	sum := sha256.Sum256([]byte("span/" + installation + "/" + run + "/" + strconv.Itoa(attempt)))
	copy(span[:], sum[:])
	return span
}

// Sampling is whether the trace of a run is recorded.
type Sampling uint8

// The kinds of sampling.
const (
	SamplingOff Sampling = iota // the node makes no traces
	NotSampled
	Sampled
)

// Requester is the trace context of the request that asked for a run.
type Requester struct {
	Trace   TraceID
	Span    SpanID
	Sampled bool
}

var traceparentForm = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-|$)`)

// ParseTraceparent reads a header traceparent. ok is false if it is invalid by W3C Trace Context; ignore it then.
func ParseTraceparent(text string) (from Requester, ok bool) {
	parts := traceparentForm.FindStringSubmatch(text)
	if parts == nil || parts[1] == "ff" || parts[1] == "00" && parts[5] != "" {
		return from, false
	}
	var flags [1]byte
	for into, part := range map[*string][]byte{&parts[2]: from.Trace[:], &parts[3]: from.Span[:], &parts[4]: flags[:]} {
		if _, err := hex.Decode(part, []byte(*into)); err != nil {
			return Requester{}, false
		}
	}
	from.Sampled = flags[0]&1 == 1
	return from, from.Trace != TraceID{} && binary.BigEndian.Uint64(from.Span[:]) != 0
}
