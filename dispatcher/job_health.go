package dispatcher

import "time"

// MaxMeasuredJobs is how many jobs one scrape of the metrics of jobs shows.
const MaxMeasuredJobs = 1000

// JobHealth is what the metrics of a job tell.
type JobHealth struct {
	JobSummary
	// LastSuccess is when the last run that succeeded ended; nil: none of the latest 100 did.
	LastSuccess *time.Time
}
