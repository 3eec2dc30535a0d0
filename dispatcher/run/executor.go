package run

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"
)

// ExecutorRun is how executors of XXL-JOB know an attempt.
type ExecutorRun struct {
	// JobID stands for the job. Executors queue and stop by it.
	JobID int32
	// LogID stands for the attempt: its callback and its log have it.
	LogID int64
	// LoggedAt is the time under whose day executors keep the log: the scheduled time.
	LoggedAt time.Time
}

// ExecutorJobID returns the number by which executors know a job: 31 bits of its key, never 0.
func ExecutorJobID(app, job string) int32 { return max(int32(JobID(app, job)>>32), 1) }

// ExecutorLogID returns the number by which executors name an attempt. It has 53 bits, so that it is exact in languages
// whose numbers are floating-point, and is never 0.
func ExecutorLogID(eventID string, attempt int) int64 {
	sum := sha256.Sum256([]byte("log/" + eventID + "/" + strconv.Itoa(attempt)))
	return max(int64(binary.BigEndian.Uint64(sum[:8])>>11), 1)
}

// ExecutorRun returns how executors know an attempt of r.
func (r *Run) ExecutorRun(attempt int) ExecutorRun {
	return ExecutorRun{ExecutorJobID(r.App, r.Job), ExecutorLogID(r.EventID, attempt), r.ScheduledAt}
}
