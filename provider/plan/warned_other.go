//go:build !linux && !darwin

package plan

import "errors"

// startOf is not implemented on this system, so an apply repeats the warnings of its plan.
func startOf(int) (string, error) { return "", errors.ErrUnsupported }
