package run

import "time"

// MissedRange is a range of missed instants, both ends inclusive.
type MissedRange struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Count int       `json:"count"`
}
