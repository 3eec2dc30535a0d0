package node

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/carillon-dev/carillon/dispatcher/platform"
)

// limitMemory has the garbage collector keep this process below the memory of its container, which the kernel
// would enforce by a kill. A tenth is left for what the collector does not count. GOMEMLIMIT, if it is set, is
// all that counts.
func limitMemory(ctx context.Context, log *slog.Logger) {
	limit, ok := platform.ContainerMemory("/")
	if !ok || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	soft := softLimit(limit)
	debug.SetMemoryLimit(soft)
	log.InfoContext(ctx, "memory limit set", "bytes", soft, "container_bytes", limit.Bytes, "source", limit.Source)
}

// softLimit is nine tenths of a limit.
func softLimit(limit platform.MemoryLimit) int64 { return limit.Bytes / 10 * 9 }
