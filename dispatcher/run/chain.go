package run

// ChainLink is the place of runs in a chain; see Cause.
type ChainLink struct{ Depth, MayFollow int }
