//go:build !linux && !darwin

package plan

import "errors"

// startOf cannot say when a process started, so an apply repeats the warnings of its plan.
func startOf(int) (string, error) { return "", errors.ErrUnsupported }
