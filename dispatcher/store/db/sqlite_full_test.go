package db

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestRefusedWritesAreRecognized(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want string // what the refusal says; empty for none
	}{
		"of PostgreSQL":        {fmt.Errorf("heartbeat: %w", &pgconn.PgError{Code: "53100"}), "disk of the database is full"},
		"of a new connection":  {&pgconn.PgError{Code: "XX000", Message: "could not write init file"}, "free space"},
		"of a file":            {fmt.Errorf("write: %w", syscall.ENOSPC), "free space"},
		"too many connections": {&pgconn.PgError{Code: "53300"}, ""},
		"another error":        {errors.New("connection refused"), ""},
		"a write to a standby": {&pgconn.PgError{Code: "25006"}, "read-only"},
		"a standby":            {fmt.Errorf("connect: %w", errReadOnly), "read-only"},
		"no error":             {nil, ""},
	} {
		if got := RefusesWrites(tt.err); (got != nil) != (tt.want != "") || got != nil && !strings.Contains(got.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, got, tt.want)
		}
	}
}
