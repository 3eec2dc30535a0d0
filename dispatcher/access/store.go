package access

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Definitions are what users declare. Each write adds its entry to the audit log in the same transaction and notifies
// all nodes once it is committed (see Dispatch.Listen). A PUT of an unchanged definition keeps the revision, and
// neither writes nor notifies. The same holds for pausing what is paused, or resuming what is not.
type Definitions interface {
	// PutApp creates or replaces an app. It returns it as stored, and whether it was created.
	PutApp(ctx context.Context, app App, change input.Change) (stored App, created bool, err error)
	// App returns ErrNotFound if the app does not exist.
	App(ctx context.Context, name string) (App, error)
	// AppWithUsage is App with its pauses and its use of quotas.
	AppWithUsage(ctx context.Context, name string) (App, error)
	// Apps lists apps by name.
	Apps(ctx context.Context, page input.Page) ([]App, error)
	// DeleteApp returns ErrNotEmpty, with some of their names, while the app has jobs, calendars, groups or alerts.
	DeleteApp(ctx context.Context, name string, change input.Change) error

	// JobDefaults returns the defaults of an app for its jobs; nil if it has none, or does not exist.
	JobDefaults(ctx context.Context, app string) (*dispatcher.JobDefaults, error)

	// PutJob creates or replaces a job with its triggers in one transaction, by the rules of
	// Apply. It returns the job as stored, without the values of its secrets, and whether it was
	// created. ErrNotFound: the app does not exist. Problems: the definition is wrong, or its
	// secrets cannot be stored.
	PutJob(ctx context.Context, job dispatcher.Job, change input.Change) (stored dispatcher.Job, created bool, err error)
	// Job returns ErrNotFound if the job does not exist.
	Job(ctx context.Context, app, name string) (dispatcher.Job, error)
	// Jobs lists jobs by name. A job with an unreadable definition is listed in state error with a warning; Job
	// returns an error for it.
	Jobs(ctx context.Context, app string, page input.Page) ([]dispatcher.Job, error)
	// DeleteJob removes the definition and stops its fires. The ledger stays.
	DeleteJob(ctx context.Context, app, name string, change input.Change) error
	// PauseJob sets or lifts an operator's pause of a job, or of one trigger if trigger is not
	// empty, and increments the revision, which voids every fire already in a node's memory.
	PauseJob(ctx context.Context, app, job, trigger string, paused bool, change input.Change) (dispatcher.Job, error)
	// RenameJob renames a job, triggers of it, or both at once. Values that derive from the old names stay; see
	// Job.Origin. It returns the job under its new name. Problems: a name is taken, also by a deleted job with
	// history, or the job would not change, or a trigger does not exist.
	RenameJob(ctx context.Context, app, name string, rename dispatcher.JobRename, change input.Change) (dispatcher.Job, error)

	// PutCalendar creates or replaces a calendar. It returns the calendar as stored, and whether
	// it was created. In the same transaction, the triggers that depend on it, also through
	// bases, get new fire times by the rules of RescheduleForCalendar. ErrNotFound: the app does
	// not exist. Problems: the definition is wrong, or a base is.
	PutCalendar(ctx context.Context, calendar dispatcher.Calendar, change input.Change) (stored dispatcher.Calendar, created bool, err error)
	// Calendar returns ErrNotFound if the calendar does not exist.
	Calendar(ctx context.Context, app, name string) (dispatcher.Calendar, error)
	// Calendars lists calendars by name.
	Calendars(ctx context.Context, app string, page input.Page) ([]dispatcher.Calendar, error)
	// DeleteCalendar returns an ErrInUse that names the user, while a trigger or a calendar refers to the calendar.
	DeleteCalendar(ctx context.Context, app, name string, change input.Change) error
	// DeleteCalendarWhenUnused deletes the calendar if it is unused. Otherwise it marks and returns it: the change
	// that removes its last use deletes it, in the same transaction. A PUT removes the mark.
	DeleteCalendarWhenUnused(ctx context.Context, app, name string, change input.Change) (marked *dispatcher.Calendar, err error)
}

// Credentials are the API tokens and the stored secrets of targets.
type Credentials interface {
	// RewrapSecrets encrypts the data keys of all stored secrets with the current key and returns how
	// many it changed; see ErrKeyMissing.
	RewrapSecrets(ctx context.Context, change input.Change) (int, error)

	// CreateToken stores a token on behalf of the system; ErrPrecondition if its name is taken.
	CreateToken(ctx context.Context, token APIToken) error
	// PutToken creates a token, with its id and hash, or changes the description, scopes, apps and expiry of an
	// existing one, which keeps id and secret. It returns the token as stored, and whether it was created. Problems:
	// the token is wrong, or expires in the past. ErrLastAdmin: see DeleteToken.
	PutToken(ctx context.Context, token APIToken, change input.Change) (stored APIToken, created bool, err error)
	// RotateToken gives a token another secret. ErrConflict: it has expired, and the rotation has no later expiry.
	RotateToken(ctx context.Context, name string, rotation TokenRotation, change input.Change) (APIToken, error)
	// Token returns ErrNotFound if the token does not exist.
	Token(ctx context.Context, name string) (APIToken, error)
	// TokenByHash returns the token with the hash of its secret, or of its secret before the latest rotation: in that
	// case its Hash differs. It also returns expired tokens. ErrNotFound: there is no such token.
	TokenByHash(ctx context.Context, hash [32]byte) (APIToken, error)
	// Tokens lists tokens by name, expired ones included.
	Tokens(ctx context.Context, page input.Page) ([]APIToken, error)
	// UseTokens records when tokens, by their ids, were last used.
	UseTokens(ctx context.Context, used map[string]time.Time) error
	// DeleteToken revokes a token. ErrLastAdmin: the change comes from a token, and no token could manage tokens
	// after it. The command line, which has no token, may do so.
	DeleteToken(ctx context.Context, name string, change input.Change) error
}

// Sessions are the logins of people in the console. Logins and logouts are entries of the audit log.
type Sessions interface {
	// CreateSession stores a session, and ends sessions above the limits: those of its token, and of all; see
	// MaxTokenSessions and MaxSessions.
	CreateSession(ctx context.Context, session Session, change input.Change) error
	// Session returns the session with a hash, with its token. With used, it records the use, at most once in
	// SessionRenewal; a page that refreshes itself does not count. ErrNotFound: it does not exist, it has ended at now,
	// or its token was revoked.
	Session(ctx context.Context, hash [32]byte, now time.Time, used bool) (Session, error)
	// EndSession ends one session; it is not an error if it has ended.
	EndSession(ctx context.Context, id string, change input.Change) error
	// EndSessions ends all sessions of a token or identity, and returns their number.
	EndSessions(ctx context.Context, tokenID string, change input.Change) (int, error)
}
