// Command checker judges a chaos run by what the database and the receiver remember of it.
//
// It imports nothing of the product: it reads the tables as they are, knows the meaning of the
// headers of a request, and works out when a schedule fires by trying every second. Its last line
// is its verdict, and it fails unless nothing was lost, unexplained, early, overlapping or
// unrecovered.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	database := flag.String("database", "", "URL of the database, whose nodes have ended")
	dir := flag.String("dir", "", "directory with what the run wrote down")
	deadAfter := flag.Duration("dead-after", 2*time.Second, "how long after its last heartbeat a node is declared dead")
	drain := flag.Duration("drain", 3*time.Second, "how long a node that is told to end waits for what is in flight")
	recovery := flag.Duration("recovery", 2700*time.Millisecond, "how long it takes at most, once a node lives, until what a dead one held goes on")
	flag.Parse()
	h, err := load(context.Background(), *database, *dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "checker:", err)
		os.Exit(2)
	}
	h.deadAfter, h.drain, h.recovery = *deadAfter, *drain, *recovery
	v, err := check(h)
	if err != nil {
		fmt.Fprintln(os.Stderr, "checker:", err)
		os.Exit(2)
	}
	if v.print(os.Stdout, h); !v.passed() {
		os.Exit(1)
	}
}
