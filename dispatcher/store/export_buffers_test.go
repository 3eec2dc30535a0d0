package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// DueBuffers returns how many pages of PostgreSQL a read of due triggers touches.
func DueBuffers(ctx context.Context, s dispatcher.Store, query dispatcher.DueQuery) (int, error) {
	own := s.(*store)
	return own.buffers(ctx, own.hot.due.of(query).parts[0], own.dueArgs(query))
}

// OverdueAppsBuffers is the same for the look for overdue apps, by a node without labels.
func OverdueAppsBuffers(ctx context.Context, s dispatcher.Store, now time.Time) (int, error) {
	own := s.(*store)
	args := append([]any{now.UnixMilli(), int64(0), int64(0)}, own.batch(dueListsOf(nil, nil, nil)...)...)
	return own.buffers(ctx, own.rows(1, 4, "", dueLists...)+overdueApps, args)
}

// touched is what EXPLAIN says first of pages: those of the whole statement.
var touched = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

func (s *store) buffers(ctx context.Context, query string, args []any) (pages int, err error) {
	var plan strings.Builder
	_, err = s.run(ctx, read("EXPLAIN (ANALYZE, BUFFERS) "+query), args, func(row scanner) error {
		line, err := scanText(row)
		plan.WriteString(line + "\n")
		return err
	})
	if err != nil {
		return 0, err
	}
	found := touched.FindStringSubmatch(plan.String())
	if found == nil {
		return 0, fmt.Errorf("no buffers in plan\n%s", plan.String())
	}
	for _, text := range found[1:] {
		n, _ := strconv.Atoi(text) // empty: none
		pages += n
	}
	return pages, nil
}
