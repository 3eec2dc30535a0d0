package db

import (
	"context"
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// sizedRow counts the bytes of text that a row has.
type sizedRow struct {
	Scanner
	bytes *int
}

// Scan scans the row, and counts.
func (s sizedRow) Scan(dest ...any) error {
	err := s.Scanner.Scan(dest...)
	for _, d := range dest {
		if text, ok := d.(*string); ok {
			*s.bytes += len(*text)
		}
	}
	return err
}

// errEnough ends the reading of a page.
var errEnough = errors.New("enough")

// CollectPage is collect for a page: with ErrPageBytes it returns the items up to the one with which they have more bytes
// than the page may have. further returns the bytes that an item has beyond those of its row; it may be nil.
func CollectPage[T any](ctx context.Context, q Querier, page input.Page, scan func(Scanner) (T, error), further func(T) int,
	query string, args ...any) (all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	bytes := 0
	err = each(rows, func(row Scanner) error {
		if page.Bytes > 0 && bytes > page.Bytes {
			return errEnough // there is one more
		}
		one, err := scan(sizedRow{row, &bytes})
		all = append(all, one)
		if further != nil {
			bytes += further(one)
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return all, dispatcher.ErrPageBytes
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// TriggerBytes is about what a trigger takes in a list of jobs.
const TriggerBytes = 1 << 10
