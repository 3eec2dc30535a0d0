//go:build !chaos

package failpoint

// Enabled tells whether this program has failpoints.
const Enabled = false

// Hit acts if the point is due to act.
func Hit(Point) {}

// During is Hit for a stretch of time that begins now: it returns at once, and the action
// comes a little later.
func During(Point) {}
