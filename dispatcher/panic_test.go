package dispatcher_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	var none map[string]int
	err := dispatcher.WithoutPanic(func() error {
		none["a"] = 1
		return nil
	})
	var panicked *dispatcher.PanicError
	if !errors.As(err, &panicked) || !strings.Contains(err.Error(), "nil map") || !strings.Contains(panicked.At, "panic_test.go:") {
		t.Errorf("got error %v, want one that says what the panic was and where", err)
	}
	if err := dispatcher.WithoutPanic(func() error { return errors.ErrUnsupported }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got error %v, want that of the function", err)
	}
}
