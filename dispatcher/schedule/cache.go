package schedule

import (
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Cache parses specs and keeps the results, so that a million triggers with a thousand
// different expressions cost a thousand parses. It is safe for concurrent use.
//
// It keeps the checked expression, which all specs that differ only in their bounds share; the
// Schedule around it is small. It keeps schedules with a repeat count whole, because finding
// their end takes a walk. It keeps problems too.
type Cache struct {
	programs *cache.Cache[cacheKey, *compiled]
	repeated *cache.Cache[cacheKey, *Schedule]
}

// cacheKey includes the time zone data, because a process may switch to others.
type cacheKey struct {
	Spec
	zones *Zones
}

type compiled struct {
	program *program
	errs    input.Problems
}

// NewCache returns a cache of the limit expressions and the limit schedules with a repeat count that were used last,
// and at most as many others. A limit below 1 means 1.
func NewCache(limit int) *Cache {
	return &Cache{programs: cache.New[cacheKey, *compiled](2 * limit), repeated: cache.New[cacheKey, *Schedule](2 * limit)}
}

// Parse is the function Parse, with this cache.
func (c *Cache) Parse(spec Spec) (*Schedule, error) {
	zones := CurrentZones()
	whole := cacheKey{spec.normalised(), zones}
	text := cacheKey{Spec{
		Expression: spec.Expression, Dialect: spec.Dialect, Timezone: spec.Timezone,
		Gap: spec.Gap, Overlap: spec.Overlap, OnExcluded: spec.OnExcluded, DriftHour: spec.DriftHour,
	}, zones}
	if UsesHash(spec.Expression) {
		text.Identity = spec.Identity
	}

	if spec.RepeatCount > 0 {
		if s, ok := c.repeated.Get(whole); ok {
			return s, nil
		}
	}
	found, ok := c.programs.Get(text)
	if !ok {
		found = &compiled{}
		found.program, found.errs = compile(text.Spec)
	}
	s, err := finish(spec, found.program, found.errs)
	if CurrentZones() != zones {
		return s, err // it is unknown which data it was parsed with
	}
	// A text that is too long is a problem of any length, which would take unbounded memory.
	if !ok && len(text.Expression) <= maxText && len(text.Timezone) <= maxText {
		c.programs.Put(text, found)
	}
	if err == nil && s.last != nil {
		c.repeated.Put(whole, s)
	}
	return s, err
}
