// Command checker judges a chaos run by the records of the database and of the receiver.
//
// It imports nothing of the product: it reads the tables directly, knows the meaning of the request
// headers, and finds the fires of a schedule by trying every second. Its last line is the verdict. It fails
// unless nothing was lost, unexplained, early, overlapping or unrecovered.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	database := flag.String("database", "", "URL of the database, after all nodes have ended")
	dir := flag.String("dir", "", "directory with the records of the run")
	deadAfter := flag.Duration("dead-after", 2*time.Second, "time without a heartbeat until a node counts as dead")
	drain := flag.Duration("drain", 3*time.Second, "how long a draining node waits for runs in flight")
	recovery := flag.Duration("recovery", 2700*time.Millisecond, "longest time, while any node lives, until the runs of a dead one go on")
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
