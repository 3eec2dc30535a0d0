package decode

import (
	"runtime"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/badinput"
)

// mostMemory bounds the memory of a body: 20 times its size, and a constant.
func mostMemory(size int) int64 { return 20*int64(size) + 4<<20 }

// allocated returns how many bytes f allocates in total, which is at least its peak.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc) //nolint:gosec // far less
}

// Decoding a body allocates at most 20 times its size, for any content and any type.
func TestDecodingAllocatesInProportionToTheBody(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	kinds := map[string]func() any{
		"job":      func() any { return &dispatcher.Job{} },
		"calendar": func() any { return &dispatcher.Calendar{} },
		"group":    func() any { return &target.EndpointGroup{} },
		"app":      func() any { return &access.App{} },
		"alert":    func() any { return &alert.Alert{} },
	}
	for name, text := range badinput.HostileBodies(MaxBody) {
		for kind, create := range kinds {
			into := create()
			if got := allocated(func() { _ = JSON(t.Context(), []byte(text), into) }) - int64(len(text)); got > mostMemory(len(text)) {
				t.Errorf("%s as %s: %d bytes allocate %d, which is %d times as much; want %d times at most", name, kind, len(text), got,
					got/int64(len(text)), mostMemory(len(text))/int64(len(text)))
			}
		}
	}
}
