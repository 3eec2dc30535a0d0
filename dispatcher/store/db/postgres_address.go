package db

import (
	"fmt"
	"strings"
)

// Address is where a database is. Printing it never shows a password.
type Address struct {
	url   string // PostgreSQL
	Path  string // SQLite
	Login Login
}

// ParseAddress reads postgres://…, postgresql://… or sqlite:PATH.
func ParseAddress(database string) (Address, error) {
	scheme, rest, _ := strings.Cut(database, ":")
	switch scheme {
	case "postgres", "postgresql":
		if !strings.HasPrefix(rest, "//") {
			return Address{}, fmt.Errorf("database %q is not a URL; write it as postgres://user:password@host:5432/name", mask(database))
		}
		return Address{url: database}, nil
	case "sqlite":
		if path := strings.TrimPrefix(rest, "//"); path != "" && path != ":memory:" {
			return Address{Path: path}, nil
		}
		return Address{}, fmt.Errorf("database %q names no file; write it as sqlite:carillon.db", database)
	}
	return Address{}, fmt.Errorf("database %q is neither postgres://… nor sqlite:PATH", mask(database))
}

// String returns the address with the password masked.
func (a Address) String() string {
	if a.Path != "" {
		return "sqlite:" + a.Path
	}
	return mask(a.url)
}

// mask hides what stands between "//user:" and the last "@", also in what is no URL, and the
// value of a password parameter.
func mask(database string) string {
	head, query, _ := strings.Cut(database, "?")
	if at := strings.LastIndexByte(head, '@'); at >= 0 {
		start := strings.Index(head, "//") + 2
		if start < 2 || start > at {
			start = 0
		}
		if user, _, ok := strings.Cut(head[start:at], ":"); ok {
			head = head[:start] + user + ":xxxxx" + head[at:]
		}
	}
	if query == "" {
		return head
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, _, _ := strings.Cut(part, "="); strings.Contains(name, "password") {
			parts[i] = name + "=xxxxx"
		}
	}
	return head + "?" + strings.Join(parts, "&")
}
