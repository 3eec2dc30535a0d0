package run

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"
)

// AppID returns the key of an app's row, as JobID and TriggerID do for theirs: 63 bits of a
// hash of its names. The same names give the same key in every installation and after every
// restore.
func AppID(app string) int64 { return HashID("app", app) }

// JobID returns the key of a job; see AppID.
func JobID(app, job string) int64 { return HashID("job", app, job) }

// GroupID returns the key of an endpoint group; see AppID.
func GroupID(app, group string) int64 { return HashID("group", app, group) }

// TriggerID returns the key of a trigger; see AppID.
func TriggerID(app, job, trigger string) int64 { return HashID("trigger", app, job, trigger) }

// HashID never returns 0, which means "none". Names hold no "/", so joining is unambiguous.
func HashID(parts ...string) int64 {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return idOfSum(sum[:])
}

// idOfSum returns the id that a hash of 8 bytes or more begins with.
func idOfSum(sum []byte) int64 { return int64(binary.BigEndian.Uint64(sum)>>1) | 1 }

// Key identifies a run: the fire it executes. A job that is run by hand has no trigger,
// so TriggerID then holds the job's id. Runs of KindChain, KindAlert and KindFollow have a hash of what
// they follow there, so that what asks for one again finds it.
type Key struct {
	TriggerID   int64
	ScheduledAt time.Time // whole milliseconds, UTC
	Kind        Kind
	// Shard is the index of a shard of a broadcast plus 1; 0: the run is no shard.
	Shard int
}

// idEncoding sorts as the bytes it encodes do, so run ids sort by time.
var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// String returns the run's public id: 24 characters that hold the scheduled instant, the
// trigger and the kind, so that finding a run by id is one look-up by key. That of a shard is that of
// its parent, "-" and the index.
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

// ErrID says that a text is no run id.
var ErrID = errors.New("not a run id")

// IsID tells whether a text is a run id.
func IsID(text string) bool {
	_, err := ParseKey(text)
	return err == nil
}

// ParseKey reads what Key.String wrote; the error is ErrID.
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
	// The decoder skips line breaks, but one run has one id.
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

// ParseNodeID reads what NodeID.String wrote.
func ParseNodeID(text string) (NodeID, error) {
	n, err := strconv.ParseUint(text, 16, 63)
	// One node has one id: no signs, no capitals.
	if err != nil || NodeID(n).String() != text {
		return 0, errors.New("not a node id")
	}
	return NodeID(n), nil
}

// MarshalText is String.
func (n NodeID) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText is ParseNodeID.
func (n *NodeID) UnmarshalText(text []byte) error {
	id, err := ParseNodeID(string(text))
	*n = id
	return err
}

// Token fences the runs of one claim: a node records their outcome only with it. Drawn at
// random by the claiming node; never 0.
type Token int64
