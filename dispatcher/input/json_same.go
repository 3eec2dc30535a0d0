package input

import (
	"bytes"
	"encoding/json"
)

// SameJSON reports whether two values are the same as JSON.
func SameJSON(a, b any) bool {
	was, err := json.Marshal(a)
	if err != nil {
		return false
	}
	is, err := json.Marshal(b)
	return err == nil && bytes.Equal(was, is)
}
