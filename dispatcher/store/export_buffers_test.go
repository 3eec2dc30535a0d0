package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// DueBuffers returns how many pages of PostgreSQL a read of due triggers touches.
func DueBuffers(ctx context.Context, s *Store, query dispatcher.DueQuery) (int, error) {
	return s.buffers(ctx, s.Hot.Due.Of(query).Parts[0], s.DueArgs(query))
}

// OverdueAppsBuffers is the same for the look for overdue apps, by a node without labels.
func OverdueAppsBuffers(ctx context.Context, s *Store, now time.Time) (int, error) {
	args := append([]any{now.UnixMilli(), int64(0), int64(0)}, s.db.Batch(dispatch.DueListsOf(nil, nil, nil)...)...)
	return s.buffers(ctx, s.db.Rows(1, 4, "", dispatch.DueLists...)+dispatch.OverdueApps, args)
}

// AdoptionBuffers is the same for a look for runs that nobody works on.
func AdoptionBuffers(ctx context.Context, s *Store, now time.Time) (pages int, err error) {
	none := s.db.Batch([]int64{0})
	dead := append([]any{now.UnixMilli()}, none...)
	ids, err := db.Collect(ctx, s.db.Read, db.ScanInt, s.Hot.Unfold.Dead, dead...)
	if err != nil {
		return 0, err
	}
	look := s.LookArgs(dispatcher.AdoptQuery{Node: 1, Limit: 500, Now: now}, []string{""}, []string{""})
	for query, args := range map[string][]any{
		s.Hot.Unfold.Dead:       dead,
		s.Hot.Unfold.Abandoned:  {ids, int64(dispatch.ClaimsAtOnce)},
		s.Hot.Idle.Parts[0]:     look,
		s.Hot.FailLost.Parts[0]: append([]any{now.UnixMilli(), int64(500)}, none...),
	} {
		if query == s.Hot.Unfold.Abandoned && len(ids) == 0 {
			continue
		}
		n, err := s.buffers(ctx, query, args)
		if err != nil {
			return 0, err
		}
		pages += n
	}
	return pages, nil
}

// RetriesBuffers is the same for a look for retries that are due at some time or later.
func RetriesBuffers(ctx context.Context, s *Store, from, now time.Time) (int, error) {
	query := dispatcher.AdoptQuery{Node: 1, Limit: 500, Now: now, Retries: true, From: from}
	return s.buffers(ctx, s.Hot.DueRetries.Parts[0], s.LookArgs(query, []string{""}, []string{""}))
}

// touched is what EXPLAIN says first of pages: those of the whole statement.
var touched = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

func (s *Store) buffers(ctx context.Context, query string, args []any) (pages int, err error) {
	var plan strings.Builder
	_, err = s.db.Execute(ctx, db.Reading("EXPLAIN (ANALYZE, BUFFERS) "+query), args, func(row db.Scanner) error {
		line, err := db.ScanText(row)
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

// TurnsBuffers is the same for a look by turns of apps, of retries or of runs that nobody works on.
func TurnsBuffers(ctx context.Context, s *Store, now time.Time, retries bool) (int, error) {
	statement, args := s.lookByTurns(now, retries)
	return s.buffers(ctx, statement, args)
}

// ExplainTurns returns the plan of that look.
func ExplainTurns(ctx context.Context, s *Store, retries bool) (string, error) {
	statement, args := s.lookByTurns(time.UnixMilli(1), retries)
	return s.explain(ctx, statement, args)
}

func (s *Store) lookByTurns(now time.Time, retries bool) (string, []any) {
	args := s.LookArgs(dispatcher.AdoptQuery{Node: 2, Limit: 500, Now: now, Retries: retries}, []string{""}, []string{""})
	if retries {
		return s.Hot.RetriesByTurns.Parts[0], args
	}
	return s.Hot.Idle.Parts[0], args
}
