package db

import (
	"fmt"
	"slices"
	"strings"
)

// Capability is something that PostgreSQL has, and that another database which speaks its protocol may lack.
// Nothing depends on one: each has a way without, which costs time and not correctness. Databases are told apart by
// trying, never by their names.
type Capability string

// The capabilities, and what is done without them.
const (
	// Notifications are LISTEN and NOTIFY. Without them each node looks once a second for what has changed.
	Notifications Capability = "notifications"
	// DayPartitions are those of the history, one a day, which are made ahead and dropped as a whole. Without them
	// the history is plain tables, whose old rows are deleted as on SQLite. The first migration decides.
	DayPartitions Capability = "partitions"
	// SkipLocked is SKIP LOCKED. Without it a node waits for rows that another node is about to take. Rows are
	// locked in the order of their keys, and after the wait their conditions are checked again.
	SkipLocked Capability = "skip-locked"
	// SessionSettings are the settings of session. Without them a wait for a lock ends with the deadline of its
	// call, which is shorter where other calls would wait behind it, see tryBriefly.
	SessionSettings Capability = "session-settings"
	// Identity tells which server, and which of its histories, a database is. Without it a rollback is noticed by
	// the heartbeats and claims that are missing, but not while no node was at work.
	Identity Capability = "identity"
)

// AllCapabilities returns all there are.
func AllCapabilities() Capabilities {
	return Capabilities{Notifications, DayPartitions, SkipLocked, SessionSettings, Identity}
}

// Capabilities are those that a database has, or is to be used without.
type Capabilities []Capability

// ParseCapabilities reads names.
func ParseCapabilities(names []string) (parsed Capabilities, err error) {
	for _, name := range names {
		one := Capability(strings.TrimSpace(name))
		if !AllCapabilities().Has(one) {
			return nil, fmt.Errorf("%q is none of %s", one, AllCapabilities())
		}
		parsed = append(parsed, one)
	}
	return parsed, nil
}

// Has tells whether one is among them.
func (c Capabilities) Has(one Capability) bool { return slices.Contains(c, one) }

// Without returns those that are not among others.
func (c Capabilities) Without(others Capabilities) Capabilities {
	return slices.DeleteFunc(slices.Clone(c), others.Has)
}

// String lists the names.
func (c Capabilities) String() string {
	names := make([]string, len(c))
	for i, one := range c {
		names[i] = string(one)
	}
	return strings.Join(names, ", ")
}

// Capabilities returns what the database has. SQLite has what it needs: its one process hears its own
// changes, nobody else locks a row, and the lock file says which file it is.
func (d *DB) Capabilities() Capabilities {
	if p, ok := d.Flavor.(*Postgres); ok {
		return p.Has
	}
	return AllCapabilities()
}
