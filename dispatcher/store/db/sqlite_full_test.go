package db

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestFullDiskIsRecognized(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		full bool
	}{
		"of PostgreSQL":        {fmt.Errorf("heartbeat: %w", &pgconn.PgError{Code: "53100"}), true},
		"of a file":            {fmt.Errorf("write: %w", syscall.ENOSPC), true},
		"too many connections": {&pgconn.PgError{Code: "53300"}, false},
		"another error":        {errors.New("connection refused"), false},
		"no error":             {nil, false},
	} {
		if got := DiskFull(tt.err); got != tt.full {
			t.Errorf("%s: full %v, want %v", name, got, tt.full)
		}
	}
}
