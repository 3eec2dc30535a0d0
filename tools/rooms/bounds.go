package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of a single folder, package, function or struct.
const (
	maxFiles      = 40  // of a folder
	maxExported   = 300 // of a package
	maxComplexity = 15  // of a function, tables excepted
	maxFields     = 15  // of a struct
	maxParameters = 6   // a function has fewer
)

// Bounds of the whole: the current value where that is more than it should be. All except the lines
// are exact, so every reduction lowers its bound.
const (
	mostLines     = 118_250
	mostNinetieth = 8
	mostComplex   = 13
	mostWide      = 14
	mostLong      = 8
	mostOneUse    = 24.4 // percent of functions that their package uses at one place
	mostHeaders   = 6.2  // percent of lines that are headers
)

// problems returns everything outside its bounds.
func (h *house) problems() (problems []error) {
	over := func(what string, is, most int, which ...string) {
		if is > most {
			problems = append(problems, fmt.Errorf("%s: %d, at most %d%s", what, is, most, strings.Join(append([]string{""}, which...), "\n  ")))
		}
	}
	exact := func(what string, is, bound int, which ...string) {
		if over(what, is, bound, which...); is < bound {
			problems = append(problems, fmt.Errorf("%s: %d, less than the bound of %d; lower it in tools/rooms/bounds.go", what, is, bound))
		}
	}
	lines, _ := h.totals()
	over("lines of the product", lines, mostLines)
	oneUse, headers := h.shares()
	for what, is := range map[string][2]float64{
		"functions named at one place": {oneUse, mostOneUse}, "lines of headers": {headers, mostHeaders},
	} {
		if is[0] > is[1] {
			problems = append(problems, fmt.Errorf("%s: %.1f %%, at most %.1f %%", what, is[0], is[1]))
		}
	}
	exact("complexity that nine of ten functions have at most", h.ninetieth(), mostNinetieth)
	exact(fmt.Sprintf("functions of a complexity above %d", maxComplexity), len(h.complex), mostComplex,
		slices.Sorted(maps.Keys(h.complex))...)
	exact(fmt.Sprintf("structs with more than %d fields", maxFields), len(h.wide), mostWide, h.wide...)
	exact(fmt.Sprintf("functions with %d parameters or more", maxParameters), len(h.long), mostLong, h.long...)
	for _, name := range slices.Sorted(maps.Keys(h.folders)) {
		over("files in "+name, h.folders[name].files, maxFiles)
		over("exported names of "+name, h.folders[name].exported, maxExported)
	}
	return problems
}
