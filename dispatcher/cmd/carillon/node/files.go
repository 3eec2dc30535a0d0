package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// warnExposedFiles logs each file that other users of the machine can read, though it holds what jobs send and receive, or
// the keys of their secrets. A group may be meant to read keys: containers give them to a node so.
func warnExposedFiles(ctx context.Context, log *slog.Logger, database, keys string) {
	for _, path := range db.ExposedFiles(database) {
		warnExposed(ctx, log, path, "database")
	}
	if info, err := os.Stat(keys); keys != "" && err == nil && info.Mode().Perm()&0o027 != 0 {
		warnExposed(ctx, log, keys, "keys of stored secrets")
	}
}

func warnExposed(ctx context.Context, log *slog.Logger, path, what string) {
	info, err := os.Stat(path)
	if err != nil {
		return // it was removed a moment ago
	}
	log.WarnContext(ctx, "file is open to other users", "path", path, "holds", what,
		"mode", fmt.Sprintf("%04o", info.Mode().Perm()), "action", "chmod 600 "+path)
}
