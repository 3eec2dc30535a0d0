package engine

import (
	"sync"
	"time"
)

// linesPerSecond is how many failed attempts of an app a node logs in a second. A target that is down can fail thousands,
// and the log shall tell of other apps, too.
const linesPerSecond = 10

// lineBudget bounds lines of the log by the second.
type lineBudget struct {
	mu     sync.Mutex
	second int64
	taken  int
	left   int // not logged since the last line
}

// take tells whether a line may be logged now, and how many were left out since the line before.
func (b *lineBudget) take(now time.Time) (log bool, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if second := now.Unix(); second != b.second {
		b.second, b.taken = second, 0
	}
	if b.taken == linesPerSecond {
		b.left++
		return false, 0
	}
	b.taken++
	left, b.left = b.left, 0
	return true, left
}
