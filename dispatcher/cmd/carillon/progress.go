package main

import (
	"fmt"
	"time"
)

// progress says on standard error how far a command is that takes long, so that its output stays as it is.
type progress struct {
	c    console
	what string
	last time.Time
}

func newProgress(c console, what string) *progress {
	return &progress{c: c, what: what, last: time.Now()}
}

// say tells a number, unless it has told one just now.
func (p *progress) say(n int) {
	const pace = 2 * time.Second
	if now := time.Now(); now.Sub(p.last) >= pace {
		p.last = now
		fmt.Fprintf(p.c.err, "carillon: %d %s so far\n", n, p.what)
	}
}
