//go:build !chaos

package failpoint

// Enabled reports whether this program has failpoints.
const Enabled = false

// Hit does nothing in this program.
func Hit(Point) {}

// During does nothing in this program.
func During(Point) {}
