package dispatcher

import (
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// AlertID returns the key of an alert; see AppID.
func AlertID(app, alert string) int64 { return run.HashID("alert", app, alert) }

// AlertStateID returns the key of a condition of an alert for a job, by the key of the job and the salt of the app. Notifications
// have it in place of a trigger.
func AlertStateID(salt run.Salt, alert, job int64, condition target.AlertCondition) int64 {
	return salt.HashID("alert-state", strconv.FormatInt(alert, 10), strconv.FormatInt(job, 10), string(condition))
}

// AlertSuffix ends the names of jobs that deliver notifications. No user can choose such a name.
const AlertSuffix = ".alert"
