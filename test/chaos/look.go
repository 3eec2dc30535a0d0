package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// letLook runs the command of -look, while jobs fire and the effects of the faults are visible.
func (c *chaos) letLook(ctx context.Context) error {
	if c.look == "" {
		return nil
	}
	command := exec.CommandContext(ctx, "sh", "-c", c.look) //nolint:gosec // the user's own command
	command.Env = append(os.Environ(), "CHAOS_URL=http://"+c.nodes[0].listen, "CHAOS_TOKEN="+c.declared.token)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("look with %q: %w", c.look, err)
	}
	return nil
}
