package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// A shutdown ends the context of all loops, and with it the calls under way.
func TestStepThatAShutdownCutsOffIsNoError(t *testing.T) {
	t.Parallel()
	cut := fmt.Errorf("read jobs: %w", context.Canceled)
	for name, tt := range map[string]struct {
		down   bool
		err    error
		logged bool
	}{
		"cut off by a shutdown":        {true, cut, false},
		"failed during a shutdown":     {true, errors.New("connection refused"), true},
		"cancelled without a shutdown": {false, cut, true},
		"failed":                       {false, errors.New("connection refused"), true},
		"succeeded":                    {false, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			e := New(unwilling{}, nil, Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if tt.down {
				stop()
			}
			e.log.Failed(ctx, "read jobs of adopted runs", tt.err)
			if logged := strings.Contains(out.String(), "level=ERROR"); logged != tt.logged {
				t.Errorf("logged an error: %v, want %v; log: %s", logged, tt.logged, out.String())
			}
		})
	}
}
