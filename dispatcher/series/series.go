// Package series bounds how many series the metrics with a label app have, however many apps there are.
package series

import "sync"

// MostApps is how many apps have series of their own in a process; the others are counted together.
const MostApps = 100

// Others is the value of the label app of all apps that have no series of their own.
const Others = ""

// Apps holds what metrics need for each app, made once for an app and then only looked up. The first apps that a process
// meets have their own; the others share what belongs to Others.
type Apps[T any] struct {
	of     func(app string) T
	others T
	mu     sync.RWMutex
	own    map[string]T
}

// New returns an Apps that makes what an app needs by of, which must make its series with the value 0.
func New[T any](of func(app string) T) *Apps[T] {
	return &Apps[T]{of: of, others: of(Others), own: map[string]T{}}
}

// Of returns what belongs to an app.
func (a *Apps[T]) Of(app string) T {
	a.mu.RLock()
	one, known := a.own[app]
	full := len(a.own) >= MostApps
	a.mu.RUnlock()
	switch {
	case known:
		return one
	case full, app == Others:
		return a.others
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if one, known = a.own[app]; known {
		return one
	}
	if len(a.own) >= MostApps {
		return a.others
	}
	one = a.of(app)
	a.own[app] = one
	return one
}
