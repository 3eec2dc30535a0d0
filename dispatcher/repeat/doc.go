// Package repeat has long work in steps: backfills, bulk actions and the replay of dead letters.
package repeat
