package run

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// AppID returns the key of an app's row, as JobID and TriggerID do for jobs and triggers: 63 bits of a hash of the
// names. The same names give the same key in every installation and after every restore.
func AppID(app string) int64 { return HashID("app", app) }

// JobID returns the key of a job; see AppID.
func JobID(app, job string) int64 { return HashID("job", app, job) }

// GroupID returns the key of an endpoint group; see AppID.
func GroupID(app, group string) int64 { return HashID("group", app, group) }

// TriggerID returns the key of a trigger; see AppID.
func TriggerID(app, job, trigger string) int64 { return HashID("trigger", app, job, trigger) }

// HashID never returns 0, which means "none". Names contain no "/", so joining them is unambiguous.
func HashID(parts ...string) int64 {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return idOfSum(sum[:])
}

// idOfSum returns the id in the first 8 bytes of a hash.
func idOfSum(sum []byte) int64 { return int64(binary.BigEndian.Uint64(sum)>>1) | 1 }

// Key identifies a run by the fire that it executes. A job that is run by hand has no trigger, so TriggerID is then
// the job's id. For KindChain, KindAlert and KindFollow it is a hash of what the run follows, so that a repeated
// request finds the same run.
type Key struct {
	TriggerID   int64
	ScheduledAt time.Time // whole milliseconds, UTC
	Kind        Kind
	// Shard is the index of a shard of a broadcast plus 1; 0 if the run is not a shard.
	Shard int
}

// idEncoding sorts as the bytes it encodes do, so run ids sort by time.
var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// String returns the run's public id: 24 characters that encode the scheduled instant, the trigger and the kind, so
// that finding a run by id is one look-up by key. The id of a shard is that of its parent, "-" and the index.
func (k Key) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(k.ScheduledAt.UnixMilli())<<16)
	binary.BigEndian.PutUint64(b[6:14], uint64(k.TriggerID))
	b[14] = k.Kind.Code()
	id := idEncoding.EncodeToString(b[:15])
	if k.Shard > 0 {
		id += "-" + strconv.Itoa(k.Shard-1)
	}
	return id
}

// ErrID means that a text is not a run id.
var ErrID = errors.New("not a run id")

// IsID reports whether a text is a run id.
func IsID(text string) bool {
	_, err := ParseKey(text)
	return err == nil
}

// ParseKey is the inverse of Key.String; the error is ErrID.
func ParseKey(id string) (Key, error) {
	fire, index, isShard := strings.Cut(id, "-")
	shard := 0
	if isShard {
		n, err := strconv.Atoi(index)
		if err != nil || n < 0 || n >= MaxShards {
			return Key{}, ErrID
		}
		shard = n + 1
	}
	b, err := idEncoding.DecodeString(fire)
	if err != nil || len(b) != 15 || b[6]&0x80 != 0 {
		return Key{}, ErrID
	}
	kind, ok := KindOfCode(b[14])
	if !ok {
		return Key{}, ErrID
	}
	ms := binary.BigEndian.Uint64(append([]byte{0, 0}, b[:6]...))
	key := Key{
		TriggerID:   int64(binary.BigEndian.Uint64(b[6:14])),
		ScheduledAt: time.UnixMilli(int64(ms)).UTC(),
		Kind:        kind,
		Shard:       shard,
	}
	// The decoder skips line breaks, but a run has exactly one id.
	if key.String() != id {
		return Key{}, ErrID
	}
	return key, nil
}

// NodeID identifies one start of one node (an incarnation); 0 means no node.
type NodeID int64

// String returns the id as 16 hexadecimal digits.
func (n NodeID) String() string {
	text := strconv.FormatUint(uint64(n), 16)
	return strings.Repeat("0", 16-len(text)) + text
}

// ParseNodeID is the inverse of NodeID.String.
func ParseNodeID(text string) (NodeID, error) {
	n, err := strconv.ParseUint(text, 16, 63)
	// A node has exactly one id: no signs, no capitals.
	if err != nil || NodeID(n).String() != text {
		return 0, errors.New("not a node id")
	}
	return NodeID(n), nil
}

// MarshalText returns String.
func (n NodeID) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText applies ParseNodeID.
func (n *NodeID) UnmarshalText(text []byte) error {
	id, err := ParseNodeID(string(text))
	*n = id
	return err
}

// Token fences the runs of one claim: a node can record their outcome only with it. The claiming node chooses it at
// random; it is never 0.
type Token int64

// Divided returns the token of a fire that leaves a claim under t for a claim of its own. The node that attempts it under t
// recognizes the fire by that.
func (t Token) Divided(fire Key) Token {
	return Token(HashID("claim", strconv.FormatInt(int64(t), 10), fire.String()))
}

// Salt is a secret of an app. The ids of events, of runs that follow others and of notifications depend on it, so that
// knowing names and times is not enough to compute ids of another app. It leaves its installation only in an Export. It
// has SaltBytes. A salt of olderSaltBytes comes from an older version, where event ids did not depend on it; with it,
// they stay as they were. An app from an export without a salt has an empty one: names and times determine all its ids.
type Salt []byte

// SaltBytes is the length of a salt, and olderSaltBytes that of a salt that event ids do not depend on.
const (
	SaltBytes      = 32
	olderSaltBytes = 16
)

// NewSalt returns a random salt.
func NewSalt() Salt {
	salt := make(Salt, SaltBytes)
	_, _ = rand.Read(salt) // never fails since Go 1.24
	return salt
}

// HashID is the function HashID with the salt. The parts include a key of something in the app, so that no salt of
// one app leads to an id of another app.
func (s Salt) HashID(parts ...string) int64 {
	if len(s) == 0 {
		return HashID(parts...)
	}
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(strings.Join(parts, "/")))
	return idOfSum(mac.Sum(nil))
}

// Origin is the source of fires, by its first names.
type Origin struct{ Installation, App, Job, Trigger string }

// EventID returns the webhook-id of a fire of the app: a function of the salt, the installation, the names, the
// instant and the kind, equal on every attempt and after a restore of the database, so that receivers can drop
// duplicates. It contains no ".", which Standard Webhooks reserves.
func (s Salt) EventID(of Origin, at time.Time, kind Kind) string {
	text := append(make([]byte, 0, 128), "event/"...)
	unsalted := len(text)
	for _, part := range [...]string{of.Installation, of.App, of.Job, of.Trigger} {
		text = append(append(text, part...), '/')
	}
	text = append(append(strconv.AppendInt(text, at.UnixMilli(), 10), '/'), kind...)
	var sum [sha256.Size]byte
	if len(s) < SaltBytes {
		sum = sha256.Sum256(text[unsalted:])
	} else {
		mac := hmac.New(sha256.New, s)
		mac.Write(text)
		mac.Sum(sum[:0])
	}
	return string(idEncoding.AppendEncode(append(text[:0], "evt_"...), sum[:16]))
}

// MarshalText returns s in base64.
func (s Salt) MarshalText() ([]byte, error) { return base64.StdEncoding.AppendEncode(nil, s), nil }

// UnmarshalText is the inverse of MarshalText. The error is a Problem that does not contain the text.
func (s *Salt) UnmarshalText(text []byte) error {
	salt, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return &input.Problem{Code: input.CodeJSONType, Message: "the salt is not base64; take the file as carillon app export wrote it"}
	}
	*s = salt
	return nil
}

// Check adds a problem if s is not a salt. The problem does not contain the salt.
func (s Salt) Check(problems *input.Problems, at string) {
	if len(s) != 0 && len(s) != olderSaltBytes && len(s) != SaltBytes {
		problems.Add(at, input.CodeCountRange, "the salt has %d bytes, and not %d or %d; take the file as carillon app export wrote it",
			len(s), olderSaltBytes, SaltBytes)
	}
}

// MaxShards is how many shards a broadcast has at most: one for each endpoint of a group, which may have as many from
// DNS as from other sources.
const MaxShards = 1000

// Shard is the place of a shard in its broadcast.
type Shard struct {
	// Index is from 0 to Total - 1, the place of its endpoint in the order of ids when the broadcast began.
	Index int `json:"index"`
	// Total is how many shards the broadcast has.
	Total int `json:"total"`
	// Endpoint is the id of the endpoint that the shard was made for. If it is removed, another one gets the shard.
	Endpoint string `json:"endpoint,omitempty" schema:"Name"`
}

// ShardCounts count the shards of a parent by outcome.
type ShardCounts struct {
	Total     int `json:"total"`
	Succeeded int `json:"succeeded"`
	// Superseded are those that their endpoints refused as stale, and Failed those that ended in another way.
	Superseded int `json:"superseded"`
	// Those that ended in another way.
	Failed int `json:"failed"`
	// Live are those that have not ended.
	Live int `json:"live"`
}

// shardCode is the step between the numbers of shards of a kind in databases.
const shardCode = 16

// Code returns the number of the kind and the shard of a key in databases. Without a shard it is the code of the
// kind.
func (k Key) Code() int { return int(k.Kind.Code()) + shardCode*k.Shard }

// SetCode is the inverse of Code. Kind is empty if no kind has the number.
func (k *Key) SetCode(code int) {
	k.Kind, _ = KindOfCode(byte(code % shardCode))
	k.Shard = code / shardCode
}

// Parent returns the key of the run that a shard is part of; for other runs, the key itself.
func (k Key) Parent() Key {
	k.Shard = 0
	return k
}

// OfIndex returns the key of the shard of k with that index.
func (k Key) OfIndex(index int) Key {
	k.Shard = index + 1
	return k
}

// EventOf returns the webhook-id of the run; event is the webhook-id of its fire, see Salt.EventID. Shards have their
// own, so that a receiver that drops duplicates gets each of them.
func (k Key) EventOf(event string) string {
	if !k.Kind.OfTrigger() && k.Kind != KindManual {
		event += "-" + strconv.FormatInt(k.TriggerID, 32)
	}
	if k.Shard == 0 {
		return event
	}
	return event + "-" + strconv.Itoa(k.Shard-1)
}

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
