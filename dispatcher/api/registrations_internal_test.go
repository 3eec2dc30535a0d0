package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A flapping fleet takes one line of the log in a minute.
func TestRegistrationsTakeOneLogLinePerTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		c := newRegistrations(slog.New(slog.NewTextHandler(&logs, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		go c.run(ctx)
		for i := range 1000 {
			c.note(ctx, cameEndpoint, "crm", fmt.Sprint("g", i%5), fmt.Sprint("e", i))
		}
		c.note(ctx, leftEndpoint, "crm", "g1", "e1")
		after := time.NewTimer(3*registrationsTurn + time.Second)
		<-after.C
		synctest.Wait()
		c.note(ctx, cameEndpoint, "crm", "g1", "e1")
		cancel()
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(logs.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "registered=1000 deregistered=1 groups=5") ||
			!strings.Contains(lines[1], "registered=1 deregistered=0 groups=1") {
			t.Errorf("the log is\n%s\nwant a line for the first turn and one for the end", &logs)
		}
	})
}
