package store_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The tests fail if a store leaks goroutines.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
