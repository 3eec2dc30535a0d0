package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// family is the range of numbers of migrations that only add to each other, as in dispatcher/store.
const family = 1000

// upgradeReasons returns why the migrations since the previous version require upgrade notes. It
// fails if one of them cannot be released at all.
func (r *release) upgradeReasons(ctx context.Context) (reasons []string, err error) {
	previous, err := r.previousTag(ctx)
	if err != nil || previous == "" {
		return nil, err
	}
	before, err := r.migrationsAt(ctx, previous)
	if err != nil {
		return nil, err
	}
	now, err := r.migrationsAt(ctx, "HEAD")
	if err != nil {
		return nil, err
	}
	if err := released(previous, before, now); err != nil {
		return nil, err
	}
	last := map[string]int{} // number by directory
	for name := range before {
		last[path.Dir(name)] = max(last[path.Dir(name)], number(name))
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, known := before[name]; known {
			continue
		}
		if n := number(name); n/family > last[path.Dir(name)]/family {
			reasons = append(reasons, fmt.Sprintf("%s begins a new thousand: %s refuses to start on the schema after it", name, previous))
		} else if found := changing.FindString(now[name]); found != "" {
			reasons = append(reasons, fmt.Sprintf("%s says %q, which does not only add to the schema of %s",
				name, strings.Join(strings.Fields(found), " "), previous))
		}
	}
	return reasons, nil
}

// changing finds a statement that removes something that a program of the previous schema needs. No
// program needs an index.
var changing = regexp.MustCompile(`(?i)\bDROP\s+(TABLE|COLUMN|VIEW|CONSTRAINT|NOT\s+NULL|DEFAULT|TYPE|SCHEMA)\b|\bRENAME\b|` +
	`\bALTER\s+COLUMN\b|\bSET\s+NOT\s+NULL\b|\bDELETE\s+FROM\b|\bTRUNCATE\b`)

// released checks that migrations that databases already have stay unchanged.
func released(tag string, before, now map[string]string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(before)) {
		text, there := now[name]
		switch {
		case !there:
			problems = append(problems, fmt.Errorf("%s was released with %s and is gone; databases have run it, so put it back", name, tag))
		case text != before[name]:
			problems = append(problems, fmt.Errorf("%s was released with %s and has changed; databases that ran it would not notice, "+
				"so add a new migration instead", name, tag))
		}
	}
	return errors.Join(problems...)
}

// migrationsAt returns the up statements of each migration of a commit, by its path, without
// comments and with single spaces.
func (r *release) migrationsAt(ctx context.Context, commit string) (map[string]string, error) {
	list, err := git(ctx, r.root, "ls-tree", "-r", "--name-only", commit, "--", "migrations")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name := range strings.FieldsSeq(list) {
		if path.Ext(name) != ".sql" {
			continue
		}
		text, err := git(ctx, r.root, "show", commit+":"+name)
		if err != nil {
			return nil, err
		}
		all[name] = statements(text)
	}
	return all, nil
}

// statements returns the up part of a goose script, without comments and with single spaces.
func statements(script string) string {
	var out []string
	for line := range strings.SplitSeq(script, "\n") {
		if strings.HasPrefix(line, "-- +goose Down") {
			break
		}
		code, _, _ := strings.Cut(line, "--")
		out = append(out, strings.Fields(code)...)
	}
	return strings.Join(out, " ")
}

// number returns the number of a migration, which begins the name of its file.
func number(name string) int {
	digits, _, _ := strings.Cut(path.Base(name), "_")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0 // goose refuses such a file
	}
	return n
}
