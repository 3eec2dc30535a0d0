// Package badinput is the table of inputs that must be refused (see rows.md), and of bodies that are costly to accept.
package badinput

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

//go:embed rows.md
var table string

// Row is one input.
type Row struct {
	Line int // in rows.md
	// Place is where the row is tested.
	Place Place
	// Input, Where and Expected are columns of the table.
	Input, Where, Expected string
}

// Place is a kind of test for a row.
type Place string

// The places; rows.md explains the columns for each.
const (
	API     Place = "api"
	Warning Place = "warning"
	Request Place = "request"
	Node    Place = "node"
	Test    Place = "test"
)

// Rows returns the rows of the table or, if places are named, of these places. A row without a valid place is an error.
func Rows(places ...Place) ([]Row, error) {
	known := []Place{API, Warning, Request, Node, Test}
	var rows []Row
	for i, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "|") || len(cells) != 4 || strings.TrimSpace(cells[0]) == "place" {
			continue
		}
		for c := range cells {
			cells[c] = strings.TrimSpace(cells[c])
		}
		row := Row{Line: i + 1, Place: Place(cells[0]), Input: strings.Trim(cells[1], "`"), Where: cells[2], Expected: cells[3]}
		if !contains(known, row.Place) || row.Where == "" || row.Expected == "" {
			return nil, fmt.Errorf("rows.md:%d: the row has no place that proves it, or nothing to prove: %s", row.Line, line)
		}
		if len(places) == 0 || contains(places, row.Place) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func contains(places []Place, place Place) bool {
	for _, p := range places {
		if p == place {
			return true
		}
	}
	return false
}

// JSON returns the value of an api or warning row.
func (r Row) JSON() (json.RawMessage, error) {
	text := r.Input
	if before, times, repeated := strings.Cut(text, `" * `); repeated {
		n, err := strconv.Atoi(times)
		if err != nil {
			return nil, fmt.Errorf("rows.md:%d: %w", r.Line, err)
		}
		text = `"` + strings.Repeat(before[1:], n) + `"`
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("rows.md:%d: %.80s is not JSON", r.Line, text)
	}
	return json.RawMessage(text), nil
}

// Code returns the code of an api or warning row, and the pointer at which it is expected.
func (r Row) Code() (code, at string) {
	code, at, elsewhere := strings.Cut(r.Expected, " at ")
	if !elsewhere {
		at = r.Where
	}
	return code, at
}
