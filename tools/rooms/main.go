package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := check(context.Background(), ".", os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check measures the checkout at root, prints the measures, and returns everything that is out of bounds.
func check(ctx context.Context, root string, out io.Writer) error {
	house, err := measure(root)
	if err != nil {
		return err
	}
	house.print(out)
	problems := house.problems()
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		return err
	}
	drawn, err := graphOf(string(page))
	if err != nil {
		return fmt.Errorf("the graph in CONTRIBUTING.md: %w", err)
	}
	built, err := imports(ctx, root)
	if err != nil {
		return err
	}
	return errors.Join(append(problems, compare(drawn, built)...)...)
}
