package main

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
)

// warnUnknownVariables logs each CARILLON_ variable that no flag reads. A misspelt variable would otherwise
// silently leave a default in force.
func warnUnknownVariables(ctx context.Context, log *slog.Logger, environment []string) {
	known := append(variables(reflect.TypeFor[cli]()), "CARILLON_TERRAFORM")
	for _, pair := range environment {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "CARILLON_") || slices.Contains(known, name) {
			continue
		}
		log.WarnContext(ctx, "unknown environment variable", "variable", name, "known", strings.Join(nearest(name, known), ", "))
	}
}

// variables lists the environment variables in a command's struct tags.
func variables(command reflect.Type) []string {
	var names []string
	for i := range command.NumField() {
		field := command.Field(i)
		if env := field.Tag.Get("env"); env != "" {
			names = append(names, strings.Split(env, ",")...)
		}
		if field.Type.Kind() == reflect.Struct {
			names = append(names, variables(field.Type)...)
		}
	}
	return names
}

// nearest returns the known names that share the longest prefix with name.
func nearest(name string, known []string) []string {
	var best []string
	length := len("CARILLON_")
	for _, k := range known {
		n := 0
		for n < min(len(name), len(k)) && name[n] == k[n] {
			n++
		}
		switch {
		case n > length:
			best, length = []string{k}, n
		case n == length && n > len("CARILLON_"):
			best = append(best, k)
		}
	}
	if best == nil {
		return known
	}
	return best
}
