package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Attention lists what a person on call should look at: failures, triggers that do not fire, and who stopped them. It
// is read from the database, with a bounded amount of work.
type Attention struct {
	// At is when it was read, by the database's clock.
	At time.Time `json:"at"`
	// Failed are runs that ended as failed, timed_out or lost in AttentionSpan before At, the latest to end first. It
	// has the latest of each app before any second one, so that no app hides another.
	Failed Newest[run.Run] `json:"failed"`
	// Misfires were decided in AttentionSpan before At, the latest first.
	Misfires Newest[dispatcher.Misfire] `json:"misfires"`
	// Overdue are triggers that have been due for longer than OverdueAfter, the longest first.
	Overdue Newest[OverdueTrigger] `json:"overdue"`
	// Quarantined are triggers in state error.
	Quarantined Newest[QuarantinedTrigger] `json:"quarantined"`
	// Paused are pauses of apps, jobs and triggers, the longest first.
	Paused Newest[StandingPause] `json:"paused"`
	// Alerts are conditions that hold now, by the severity of their alert, and then the worst condition first.
	Alerts Newest[alert.State] `json:"alerts"`
	// Objectives are objectives with an error budget that burns too fast; see ObjectiveStatus.Burns.
	Objectives Newest[dispatcher.ObjectiveStatus] `json:"objectives"`
	// Circuits are hosts with an open circuit that runs wait for.
	Circuits Newest[OpenCircuit] `json:"circuits"`
	// Blocked are jobs whose fires do not run, because a run has had their slot for unusually long; the longest first.
	Blocked Newest[Blockage] `json:"blocked"`
	// Groups are endpoint groups without an endpoint for the jobs that call them.
	Groups Newest[SilentGroup] `json:"groups"`
	// Credentials are jobs that failed in AttentionSpan before At because of a secret, the latest first.
	Credentials Newest[CredentialFailure] `json:"credentials"`
	// Certificates are client certificates that expire within CertificateWarning, the first to expire first.
	Certificates Newest[EndingCertificate] `json:"certificates"`
	// Retention is history overdue for removal by more than RetentionLate; for app-bound tokens, of their apps.
	Retention Newest[LateRetention] `json:"retention"`
	// SetAside are rows that made work fail because of their content: runs and other rows, and then ends of runs and
	// misfires with followers that could not be queued, the earliest first.
	SetAside Newest[dispatcher.SetAside] `json:"set_aside"`
	// Nodes are at most MaxAttention nodes with a problem, and Rollback is an unresolved rollback. App-bound tokens
	// see neither. The worst come first. Nodes that vanished are listed if their latest heartbeat lies in AttentionSpan
	// before At, and no node of the same name has started since.
	Nodes []NodeAttention `json:"nodes,omitempty" schema:"max=20"`
	// MoreNodes counts the other nodes with a problem, such as nodes that vanished earlier and are not purged yet.
	MoreNodes int                  `json:"more_nodes,omitempty"`
	Rollback  *dispatcher.Rollback `json:"rollback,omitempty"`
}

// Undelivered are the listed alerts with a notification that was not delivered.
func (a Attention) Undelivered() (failing []alert.State) {
	for _, state := range a.Alerts.Items {
		if state.Notification.Fails() {
			failing = append(failing, state)
		}
	}
	return failing
}

// Newest is the beginning of a list.
type Newest[T any] struct {
	// Items are at most MaxAttention.
	Items []T `json:"items" schema:"max=20"`
	// More is true if there are more.
	More bool `json:"more,omitempty"`
}

const (
	// MaxAttention bounds each list of Attention.
	MaxAttention = 20
	// AttentionSpan is how far back failures and misfires are listed.
	AttentionSpan = 24 * time.Hour
	// OverdueAfter is how long a trigger is due before it counts as overdue; every node has polled since then.
	OverdueAfter = 10 * time.Second

	// MaxWaitingRuns bounds the count of runs that wait for a host.
	MaxWaitingRuns = 1000
)

// OverdueTrigger is a trigger that no node has claimed although it is due.
type OverdueTrigger struct {
	App          string    `json:"app" schema:"Name"`
	Job          string    `json:"job" schema:"Name"`
	Trigger      string    `json:"trigger" schema:"Name"`
	NextFireTime time.Time `json:"next_fire_time"`
	DueAt        time.Time `json:"due_at"`
	// Overdue is how long it has been due.
	Overdue input.Duration `json:"overdue"`
}

// QuarantinedTrigger is a trigger with a schedule that cannot be evaluated.
type QuarantinedTrigger struct {
	App     string `json:"app" schema:"Name"`
	Job     string `json:"job" schema:"Name"`
	Trigger string `json:"trigger" schema:"Name"`
	Error   string `json:"error"`
}

// StandingPause is a pause of an app, of a job, or of a trigger.
type StandingPause struct {
	App string `json:"app" schema:"Name"`
	// Job is empty for a pause of an app, and Trigger is empty for a pause of a job.
	Job string `json:"job,omitempty" schema:"Name"`
	// Left out for a pause of a job.
	Trigger string `json:"trigger,omitempty" schema:"Name"`
	// AppPause is the id of a pause of an app, and Labels are the labels of the jobs that it holds.
	AppPause string `json:"app_pause,omitempty"`
	// The labels of the jobs that it holds; left out if it holds all.
	Labels input.Labels `json:"labels,omitempty"`
	dispatcher.Pause
}

// OpenCircuit is a host that runs of an app wait for.
type OpenCircuit struct {
	App  string `json:"app" schema:"Name"`
	Host string `json:"host"`
	// Jobs is how many jobs have waiting runs, and Job is one of them.
	Jobs int `json:"jobs"`
	// One of them.
	Job string `json:"job" schema:"JobOrDelivery"`
	// Runs is how many runs wait, MaxWaitingRuns means at least that many; Since is when the first of them was
	// scheduled, and Error is how the host failed for one of them.
	Runs int `json:"runs"`
	// When the first of them was scheduled.
	Since time.Time `json:"since,omitzero"`
	// How the host failed for one of them.
	Error string `json:"error,omitempty"`
	// ProbeAt is when the next request goes there, as a probe.
	ProbeAt time.Time `json:"probe_at"`
}

// Blockage is a job whose later fires only wait or are skipped, because a run has had its slot for unusually long.
type Blockage struct {
	App string `json:"app" schema:"Name"`
	Job string `json:"job" schema:"JobOrDelivery"`
	// Run has the slot, and Since is when it got it.
	Run string `json:"run" schema:"RunID"`
	// When the run got the slot.
	Since time.Time `json:"since"`
	// Node makes an attempt of the run; nil if none does.
	Node *run.NodeID `json:"node,omitempty"`
	// Ended is true if the run has ended, and only its slot was left. An operator can release it.
	Ended bool `json:"ended,omitempty"`
	// Callback is true if the run waits for the callback of its target. An operator can complete or fail it.
	Callback bool `json:"callback,omitempty"`
	// WaitsSince is when the first run that waits for the slot was scheduled; nil if none waits.
	WaitsSince *time.Time `json:"waits_since,omitempty"`
	// Skipped counts the later fires that were skipped, 1000 at most.
	Skipped int `json:"skipped"`
}

// Why says who has the slot since when, what that does, and how to end it.
func (b Blockage) Why() string {
	why := fmt.Sprintf("run %s has had its slot since %s", b.Run, input.FormatInstant(b.Since))
	if b.Node != nil {
		why += fmt.Sprintf(" on node %s", b.Node)
	}
	why += fmt.Sprintf("; %d later fires were skipped", b.Skipped)
	if b.WaitsSince != nil {
		why += ", and others wait since " + input.FormatInstant(*b.WaitsSince)
	}
	if b.Ended {
		return why + fmt.Sprintf("; the run has ended: free its slot with carillon slot release %s/%s --reason TEXT", b.App, b.Job)
	}
	if b.Callback {
		return why + fmt.Sprintf("; it waits for the callback of its target: end it with carillon run complete %s or run fail %s", b.Run, b.Run)
	}
	return why + fmt.Sprintf("; if it hangs, cancel it with carillon run cancel %s", b.Run)
}

// A run has a slot for unusually long after BlockedAfter, so that short jobs do not come and go here, and after
// BlockedTimes the longest of the BlockedRuns latest runs of its job: a job that takes hours may skip fires for hours.
// A single fire in between may be skipped at any time, so BlockedSkips must be, or a run must wait for BlockedAfter.
const (
	BlockedAfter = 10 * time.Minute
	BlockedTimes = 3
	BlockedRuns  = 20
	BlockedSkips = 3
)

// NodeAttention is a node with the reasons why it needs attention.
type NodeAttention struct {
	dispatcher.Node
	// The worst first. zones: it computes with an older release of time zone data than another node; old_zones: its
	// release is more than 120 days old; dead: it vanished; silent: it has sent no heartbeat for three intervals;
	// paused: an operator or a rollback paused it; late: it begins fires more than 1 s late; saturated: the same,
	// because no worker is free; clock: it is off by more than 500 ms; certificate: its API's certificate expires
	// within 14 days; expired: it has expired.
	Reasons []dispatcher.NodeReason `json:"reasons"`
}

// Shown is the state of a node as people see it: an active node with a problem does not look active, and one that left
// by itself does not look as if it had vanished.
func (n NodeAttention) Shown() string {
	switch {
	case n.State == dispatcher.NodeDead && n.Deregistered:
		return "stopped"
	case len(n.Reasons) > 0:
		return string(n.Reasons[0])
	}
	return string(n.State)
}

// Since is when the worst reason began; nil if that is unknown.
func (n NodeAttention) Since() *time.Time {
	switch n.Shown() {
	case string(dispatcher.NodeReasonDead), string(dispatcher.NodeReasonSilent):
		return &n.HeartbeatAt
	case string(dispatcher.NodeReasonExpired):
		return n.CertificateEndsAt
	}
	return nil
}

// Examine returns all nodes of a list with the reasons why they need attention at now. It judges the age of a release by
// the data of this process.
func Examine(nodes []dispatcher.Node, now time.Time) []NodeAttention {
	newest, ours := "", schedule.CurrentZones()
	for _, node := range nodes {
		if node.State != dispatcher.NodeDead {
			newest = max(newest, node.Zones)
		}
	}
	all := make([]NodeAttention, len(nodes))
	for i, node := range nodes {
		reasons := node.Unwell()
		if node.State != dispatcher.NodeDead && node.Zones != newest {
			reasons = append(reasons, dispatcher.NodeReasonZones)
		}
		if node.State != dispatcher.NodeDead && node.Zones != "" && node.Zones <= ours.Release() && now.After(ours.OutdatedBy()) {
			reasons = append(reasons, dispatcher.NodeReasonOldZones)
		}
		slices.SortStableFunc(reasons, dispatcher.NodeReason.Compare)
		all[i] = NodeAttention{node, reasons}
	}
	return all
}

// Unwell returns the nodes that need attention at now, those with the worst reasons first.
func Unwell(nodes []dispatcher.Node, now time.Time) []NodeAttention {
	unwell := slices.DeleteFunc(Examine(nodes, now), func(n NodeAttention) bool { return len(n.Reasons) == 0 })
	slices.SortStableFunc(unwell, func(a, b NodeAttention) int { return a.Reasons[0].Compare(b.Reasons[0]) })
	return unwell
}

// Other problems, as in the alerts of an operator, each with its cause in words.
type (
	// SilentGroup is an endpoint group that enabled jobs call and that has no endpoint for them.
	SilentGroup struct {
		App   string `json:"app" schema:"Name"`
		Group string `json:"group" schema:"Name"`
		// Draining is how many endpoints it has, all of them drained by operators.
		Draining int `json:"draining"`
		// LeftAt is when the last registered endpoint expired or left; nil if none has.
		LeftAt *time.Time `json:"left_at,omitempty"`
		// Jobs is how many enabled jobs call it, and Job is one of them.
		Jobs int `json:"jobs"`
		// One of them.
		Job string `json:"job" schema:"Name"`
	}

	// CredentialFailure is a job with attempts that fail because of a secret.
	CredentialFailure struct {
		App string `json:"app" schema:"Name"`
		Job string `json:"job" schema:"JobOrDelivery"`
		// unreadable: a node cannot read or use a secret; refused: the target responded 401 or 403; oauth2: the
		// token endpoint gave no token; aws: the node has no credentials that AWS accepts.
		Reason CredentialReason `json:"reason"`
		// Runs is how many of the latest runs failed or wait because of it; MaxCredentialRuns means that many or more.
		Runs int `json:"runs"`
		// Run is the latest; Class, HTTPStatus and Error are how it failed, and At is when, zero before its end.
		Run        string    `json:"run"`
		Class      run.Class `json:"class"`
		HTTPStatus int       `json:"http_status,omitempty"`
		Error      string    `json:"error,omitempty"`
		// When that run ended; left out while it is to be attempted again.
		At time.Time `json:"at,omitzero"`
		// Secrets are the secrets of the job or its group, by where they are declared: a reference, or "stored" for a
		// value in the database. Values are never shown.
		Secrets map[string]string `json:"secrets"`
	}

	// EndingCertificate is a client certificate of nodes that expires soon, or has expired.
	EndingCertificate struct {
		App string `json:"app" schema:"Name"`
		// Job presents it; if empty, Group does.
		Job    string    `json:"job,omitempty" schema:"Name"`
		Group  string    `json:"group,omitempty" schema:"Name"`
		EndsAt time.Time `json:"ends_at"`
	}

	// LateRetention is history that should have been removed.
	LateRetention struct {
		// App has a shorter retention than others; empty if the history is too old for all apps.
		App string `json:"app,omitempty" schema:"Name"`
		// Retention is how long it is kept, and Oldest is where the history begins, to within a day.
		Retention input.Duration `json:"retention"`
		// Where the history begins, to within a day.
		Oldest time.Time `json:"oldest"`
		// Behind is how long ago it should have been removed.
		Behind input.Duration `json:"behind"`
	}
)

const (
	// ForgottenAfter is how long a pause without an end counts as intended.
	ForgottenAfter = 7 * 24 * time.Hour

	// RetentionLate is how far retention may be behind: nodes remove history by days, from time to time.
	RetentionLate = 24 * time.Hour
	// MaxCredentialRuns bounds the search for runs that fail because of a secret.
	MaxCredentialRuns = 500
)

// CredentialReason is why an attempt failed because of a secret.
type CredentialReason string

// The reasons.
const (
	CredentialUnreadable CredentialReason = "unreadable" // a node cannot read or use a secret
	CredentialRefused    CredentialReason = "refused"    // the target responded 401 or 403
	CredentialOAuth2     CredentialReason = "oauth2"     // the token endpoint gave no token, or the target refuses it
	CredentialAWS        CredentialReason = "aws"        // the node has no credentials that AWS accepts
)

// CredentialReasons are all reasons.
var CredentialReasons = []CredentialReason{CredentialUnreadable, CredentialRefused, CredentialOAuth2, CredentialAWS}

// CredentialReasonOf returns the reason of a failure with a class and HTTP status; empty if no secret is to blame.
func CredentialReasonOf(class run.Class, httpStatus int) CredentialReason {
	const unauthorized, forbidden = 401, 403
	switch {
	case class == run.ClassSecret:
		return CredentialUnreadable
	case class == run.ClassOAuth2:
		return CredentialOAuth2
	case class == run.ClassCredentials:
		return CredentialAWS
	case class == run.ClassHTTP4xx && (httpStatus == unauthorized || httpStatus == forbidden):
		return CredentialRefused
	}
	return ""
}

// SecretNames returns the names of secrets, by where they are declared, without values; see CredentialFailure.
func SecretNames(secrets map[string]target.Secret) map[string]string {
	names := make(map[string]string, len(secrets))
	for at, secret := range secrets {
		if names[at] = secret.Reference; secret.Reference == "" {
			names[at] = "stored"
		}
	}
	return names
}
