package view

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Attention is what a person on call should look at: what failed, what does not fire, and who stopped it. It is made of what
// is stored, in a bounded amount of work.
type Attention struct {
	// At is when it was put together, by the database's clock.
	At time.Time `json:"at"`
	// Failed are runs that ended as failed, timed_out or lost in AttentionSpan before At, the latest to end first. Of each app
	// it has the latest before it has further ones, so that no app hides another.
	Failed Newest[run.Run] `json:"failed"`
	// Misfires were decided in AttentionSpan before At, the latest first.
	Misfires Newest[dispatcher.Misfire] `json:"misfires"`
	// Overdue are triggers that are due for longer than OverdueAfter, the longest first.
	Overdue Newest[OverdueTrigger] `json:"overdue"`
	// Quarantined are triggers in state error.
	Quarantined Newest[QuarantinedTrigger] `json:"quarantined"`
	// Paused are pauses of apps, jobs and triggers, the longest first.
	Paused Newest[StandingPause] `json:"paused"`
	// Alerts are conditions that hold.
	Alerts Newest[alert.State] `json:"alerts"`
	// Objectives are those whose error budget burns too fast; see ObjectiveStatus.Burns.
	Objectives Newest[dispatcher.ObjectiveStatus] `json:"objectives"`
	// Circuits are hosts for which runs wait, because their circuit is open.
	Circuits Newest[OpenCircuit] `json:"circuits"`
	// Groups have no endpoint for the jobs that call them.
	Groups Newest[SilentGroup] `json:"groups"`
	// Credentials are jobs that failed in AttentionSpan before At because of a secret, the latest first.
	Credentials Newest[CredentialFailure] `json:"credentials"`
	// Certificates are presented to targets and end within CertificateWarning, the first to end first.
	Certificates Newest[EndingCertificate] `json:"certificates"`
	// Retention is history that should have been gone for more than RetentionLate; for tokens that are bound to apps, that of
	// these apps.
	Retention Newest[LateRetention] `json:"retention"`
	// SetAside are rows on which work failed because of what is stored in them: runs and other rows, and then ends of runs and
	// misfires of which what follows could not be queued, the earliest first.
	SetAside Newest[dispatcher.SetAside] `json:"set_aside"`
	// Nodes are those that are not well, MaxAttention at most, and Rollback is one that is not settled. Tokens that are bound to
	// apps see neither. Of nodes that vanished it has those whose latest heartbeat lies in AttentionSpan before At.
	Nodes []NodeAttention `json:"nodes,omitempty" schema:"max=20"`
	// MoreNodes counts the other nodes that are not well, such as those that vanished earlier and are not purged yet.
	MoreNodes int                  `json:"more_nodes,omitempty"`
	Rollback  *dispatcher.Rollback `json:"rollback,omitempty"`
}

// Newest is the beginning of a list.
type Newest[T any] struct {
	// Items are MaxAttention at most.
	Items []T `json:"items" schema:"max=20"`
	// More tells that there are more.
	More bool `json:"more,omitempty"`
}

const (
	// MaxAttention bounds each list of Attention.
	MaxAttention = 20
	// AttentionSpan is how far back failures and misfires ask for attention.
	AttentionSpan = 24 * time.Hour
	// OverdueAfter is how long a trigger is due before it counts as overdue: every node has polled since.
	OverdueAfter = 10 * time.Second

	// MaxWaitingRuns bounds how many runs that wait for a host are counted.
	MaxWaitingRuns = 1000
)

// OverdueTrigger is a trigger that no node has claimed although it is due.
type OverdueTrigger struct {
	App          string    `json:"app" schema:"Name"`
	Job          string    `json:"job" schema:"Name"`
	Trigger      string    `json:"trigger" schema:"Name"`
	NextFireTime time.Time `json:"next_fire_time"`
	DueAt        time.Time `json:"due_at"`
	// Overdue is for how long it is due.
	Overdue input.Duration `json:"overdue"`
}

// QuarantinedTrigger is a trigger whose schedule cannot be evaluated.
type QuarantinedTrigger struct {
	App     string `json:"app" schema:"Name"`
	Job     string `json:"job" schema:"Name"`
	Trigger string `json:"trigger" schema:"Name"`
	Error   string `json:"error"`
}

// StandingPause is a pause of an app, of a job, or of a trigger.
type StandingPause struct {
	App string `json:"app" schema:"Name"`
	// Job is empty for a pause of an app, and Trigger for one of a job.
	Job string `json:"job,omitempty" schema:"Name"`
	// Left out for a pause of a job.
	Trigger string `json:"trigger,omitempty" schema:"Name"`
	// AppPause is the id of a pause of an app, and Labels are those that it holds.
	AppPause string `json:"app_pause,omitempty"`
	// Those of the jobs that it holds; left out if it holds all.
	Labels input.Labels `json:"labels,omitempty"`
	dispatcher.Pause
}

// OpenCircuit is a host for which runs of an app wait.
type OpenCircuit struct {
	App  string `json:"app" schema:"Name"`
	Host string `json:"host"`
	// Jobs is how many jobs have runs that wait, and Job is one of them.
	Jobs int `json:"jobs"`
	// One of them.
	Job string `json:"job" schema:"JobOrDelivery"`
	// Runs is how many runs wait, at least if it is MaxWaitingRuns; Since is when the first of them was scheduled, and Error says
	// of one of them how the host failed.
	Runs int `json:"runs"`
	// When the first of them was scheduled.
	Since time.Time `json:"since,omitzero"`
	// How the host failed, as one of them says.
	Error string `json:"error,omitempty"`
	// ProbeAt is when the next request goes there, as a probe.
	ProbeAt time.Time `json:"probe_at"`
}

// NodeAttention is a node that is not well.
type NodeAttention struct {
	dispatcher.Node
	// zones: it computes with an older release of time zone data than another node; old_zones: its release is
	// more than 120 days old; dead: it vanished; paused: an operator or a rollback paused it; saturated: it
	// begins attempts more than 1 s late; clock: its clock differs by more than 500 ms; certificate: that of
	// its API ends within 14 days.
	Reasons []dispatcher.NodeReason `json:"reasons"`
}

// Unwell returns the nodes that ask for attention at now. The data of this process tell how old a release is.
func Unwell(nodes []dispatcher.Node, now time.Time) []NodeAttention {
	var unwell []NodeAttention
	newest := ""
	for _, node := range nodes {
		if node.State != dispatcher.NodeDead {
			newest = max(newest, node.Zones)
		}
	}
	ours := schedule.CurrentZones()
	for _, node := range nodes {
		reasons := node.Unwell()
		if node.State != dispatcher.NodeDead && node.Zones != newest {
			reasons = append(reasons, dispatcher.NodeReasonZones)
		}
		if node.State != dispatcher.NodeDead && node.Zones != "" && node.Zones <= ours.Release() && now.After(ours.OutdatedBy()) {
			reasons = append(reasons, dispatcher.NodeReasonOldZones)
		}
		if len(reasons) > 0 {
			unwell = append(unwell, NodeAttention{node, reasons})
		}
	}
	return unwell
}

// What else asks for attention, as the alerts of an operator name it: each of these says in words what the cause is.
type (
	// SilentGroup is an endpoint group that enabled jobs call and that has no endpoint for them.
	SilentGroup struct {
		App   string `json:"app" schema:"Name"`
		Group string `json:"group" schema:"Name"`
		// Draining is how many endpoints it has: operators drain all of them.
		Draining int `json:"draining"`
		// LeftAt is when the latest endpoint that had registered expired or left; nil: none has.
		LeftAt *time.Time `json:"left_at,omitempty"`
		// Jobs is how many enabled jobs call it, and Job is one of them.
		Jobs int `json:"jobs"`
		// One of them.
		Job string `json:"job" schema:"Name"`
	}

	// CredentialFailure is a job whose attempts fail because of a secret.
	CredentialFailure struct {
		App string `json:"app" schema:"Name"`
		Job string `json:"job" schema:"JobOrDelivery"`
		// unreadable: a node cannot read or use a secret; refused: the target responded 401 or 403; oauth2: the
		// token endpoint gave no token; aws: the node has no credentials that AWS accepts.
		Reason CredentialReason `json:"reason"`
		// Runs is how many of the latest runs failed or wait so, at least if it is MaxCredentialRuns.
		Runs int `json:"runs"`
		// Run is the latest of them; Class, HTTPStatus and Error say how it failed, and At when, zero: it is not over.
		Run        string    `json:"run"`
		Class      run.Class `json:"class"`
		HTTPStatus int       `json:"http_status,omitempty"`
		Error      string    `json:"error,omitempty"`
		// When that run ended; left out while it is to be attempted again.
		At time.Time `json:"at,omitzero"`
		// Secrets are what the job or its group sends, by where it is declared: a reference, or "stored" for a value that the
		// database keeps. There is never a value.
		Secrets map[string]string `json:"secrets"`
	}

	// EndingCertificate is a client certificate that nodes present to targets and that ends soon, or has ended.
	EndingCertificate struct {
		App string `json:"app" schema:"Name"`
		// Job presents it; empty: Group does.
		Job    string    `json:"job,omitempty" schema:"Name"`
		Group  string    `json:"group,omitempty" schema:"Name"`
		EndsAt time.Time `json:"ends_at"`
	}

	// LateRetention is history that should be gone.
	LateRetention struct {
		// App keeps less than others, and its history is looked at on its own; empty: no app keeps what there is.
		App string `json:"app,omitempty" schema:"Name"`
		// Retention is how long it is kept, and Oldest where what there is begins, to within a day.
		Retention input.Duration `json:"retention"`
		// Where what there is begins, to within a day.
		Oldest time.Time `json:"oldest"`
		// Behind is for how long it should have been gone.
		Behind input.Duration `json:"behind"`
	}
)

const (
	// ForgottenAfter is for how long a pause without an end counts as one that somebody meant.
	ForgottenAfter = 7 * 24 * time.Hour

	// RetentionLate is how far retention may be behind: nodes remove history by days, now and then.
	RetentionLate = 24 * time.Hour
	// MaxCredentialRuns bounds the runs that are looked through for those that fail because of a secret.
	MaxCredentialRuns = 500
)

// CredentialReason is why an attempt failed that a secret is to blame for.
type CredentialReason string

// The reasons.
const (
	CredentialUnreadable CredentialReason = "unreadable" // a node cannot read or use a secret
	CredentialRefused    CredentialReason = "refused"    // the target responded 401 or 403
	CredentialOAuth2     CredentialReason = "oauth2"     // the token endpoint gave no token, or the target refuses it
	CredentialAWS        CredentialReason = "aws"        // the node has no credentials that AWS accepts
)

// CredentialReasons are all of them.
var CredentialReasons = []CredentialReason{CredentialUnreadable, CredentialRefused, CredentialOAuth2, CredentialAWS}

// CredentialReasonOf returns why a secret is to blame for an attempt that failed with a class and an HTTP status; empty: it is
// not.
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

// SecretNames returns what secrets are, by where they are declared, without any value; see CredentialFailure.
func SecretNames(secrets map[string]target.Secret) map[string]string {
	names := make(map[string]string, len(secrets))
	for at, secret := range secrets {
		if names[at] = secret.Reference; secret.Reference == "" {
			names[at] = "stored"
		}
	}
	return names
}
