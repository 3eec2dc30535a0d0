package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// report prints the records of a file as a table, the oldest first.
func report(file string, w io.Writer) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%w; make check writes it", err)
	}
	defer in.Close()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "begun\tcommit\tstep\tresult\tseconds\tprocessor\ttests\tfailed\tskipped\tload\t")
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	var r record
	var seconds, processor float64
	var passed, failed, skipped int
	for lines.Scan() {
		r = record{}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		result := "ok"
		if !r.OK {
			result = "FAILED"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.0f\t%.0f\t%d\t%d\t%d\t%s to %s\t\n", r.Begun, r.Commit, r.Step, result, r.Seconds,
			r.Processor, r.Passed+r.Failed, r.Failed, r.Skipped, r.LoadBefore, r.LoadAfter)
		seconds, processor = seconds+r.Seconds, processor+r.Processor
		passed, failed, skipped = passed+r.Passed, failed+r.Failed, skipped+r.Skipped
	}
	fmt.Fprintf(table, "\t\tall\t\t%.0f\t%.0f\t%d\t%d\t%d\t\t\n", seconds, processor, passed+failed, failed, skipped)
	if err := lines.Err(); err != nil {
		return err
	}
	return table.Flush()
}
