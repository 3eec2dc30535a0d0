//go:build !linux

package main

import (
	"context"
	"time"
)

// Other systems do not hand orphans to this process.

func adoptOrphans() error { return nil }

func reapEnded(int) {}

func reapOrphans(context.Context, time.Duration) []string { return nil }
