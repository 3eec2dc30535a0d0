package node

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Variables are the environment variables that flags read: for each flag those that set it.
type Variables [][]string

// VariablesOf reads them from the tags of a command's struct.
func VariablesOf(command reflect.Type) (names Variables) {
	for i := range command.NumField() {
		field := command.Field(i)
		if env := field.Tag.Get("env"); env != "" {
			names = append(names, strings.Split(env, ","))
		}
		if field.Type.Kind() == reflect.Struct {
			names = append(names, VariablesOf(field.Type)...)
		}
	}
	return names
}

// isSet tells whether a variable is set, or another that sets the same flag.
func (v Variables) isSet(name string) bool {
	names := []string{name}
	for _, group := range v {
		if slices.Contains(group, name) {
			names = group
			break
		}
	}
	return slices.ContainsFunc(names, func(one string) bool {
		_, set := os.LookupEnv(one)
		return set
	})
}

// known lists the variables that flags read.
func (v Variables) known() []string {
	known := append(slices.Concat(v...), envFileVariable)
	slices.Sort(known)
	return slices.Compact(known) // many commands share a flag
}

// unknown lists the CARILLON_ variables of the environment that no flag reads.
func (v Variables) unknown() (names []string) {
	known := v.known()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "CARILLON_") && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	return names
}

// WarnUnknown logs each CARILLON_ variable that no flag reads. A misspelt variable would otherwise silently leave a default in
// force.
func (v Variables) WarnUnknown(ctx context.Context, log *slog.Logger) {
	for _, name := range v.unknown() {
		log.WarnContext(ctx, "unknown environment variable", "variable", name, "known", strings.Join(nearest(name, v.known()), ", "))
	}
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
