package schedule

import (
	"hash/fnv"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// hasher is the identity of a trigger. It chooses the value of H in cron fields and the delay of
// a fire, so that triggers with the same expression do not all fire at once. Each trigger gets
// the same value on every node and after every restart.
type hasher string

// sum hashes the identity together with the purpose of the hash.
func (h hasher) sum(purpose string) uint64 {
	sum := fnv.New64a()
	sum.Write([]byte(h))
	sum.Write([]byte{0})
	sum.Write([]byte(purpose))
	// The last bytes change little of FNV's low bits, so this adds murmur3's finaliser.
	x := sum.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// delay returns the jitter of the fire at an instant in Unix milliseconds, in [0, jitter).
func (h hasher) delay(at int64, jitter time.Duration) time.Duration {
	spread := jitter.Milliseconds()
	if spread <= 0 {
		return 0
	}
	stamp := time.UnixMilli(at).UTC().Format(time.RFC3339Nano)
	return time.Duration(h.sum(stamp)%uint64(spread)) * time.Millisecond
}

// hashPattern finds H where a value may stand.
var hashPattern = regexp.MustCompile(`(?i)(^|[\s,(])H($|[\s,/()])`)

// UsesHash reports whether an expression contains H, so that its meaning depends on Spec.Identity.
func UsesHash(text string) bool { return hashPattern.MatchString(text) }

// hashed reads H and H(a-b), each with an optional step, as in Jenkins. Without a step, it
// chooses one value of the range. With a step, it chooses the first value, below the step.
func (it item) hashed(body string, step int, stepped bool) (low, high int, err *input.Problem) {
	if it.identity == "" {
		return 0, 0, problemf(input.CodeCronHash,
			"H in the %s field hashes the identity of a trigger; without one, write a number", it.name)
	}
	low, high = it.low, it.high
	switch {
	case it.name == fieldDOM:
		high = 28 // every month has it
	case it.name == fieldWeekday && it.low == 0:
		high = 6 // 7 is Sunday again
	case it.name == fieldYear:
		return 0, 0, it.malformed("H would choose a single year; write the years")
	}
	if body != "H" {
		inner, closed := strings.CutSuffix(body[len("H("):], ")")
		from, to, ranged := strings.Cut(inner, "-")
		if !closed || !ranged {
			return 0, 0, it.malformed("write H or H(" + it.example() + ")")
		}
		straight := *it.field
		straight.wraps = false
		if low, high, err = (item{&straight, it.token}).ends(from, to); err != nil {
			return 0, 0, err
		}
	}
	width := high - low + 1
	if stepped {
		width = min(width, step)
	}
	low += int(it.identity.sum(it.name) % uint64(width))
	if !stepped {
		high = low
	}
	return low, high, nil
}
