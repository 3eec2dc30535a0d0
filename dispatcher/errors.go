package dispatcher

import (
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Sentinels that callers of a Store branch on.
var (
	// ErrNotFound says that the named thing does not exist.
	ErrNotFound = errors.New("not found")
	// ErrPrecondition says that the revision the caller expected is not the current one, or
	// that what must not exist does.
	ErrPrecondition = errors.New("precondition failed")
	// ErrPageBytes comes with a page that ended early, because its items have as many bytes as it may have. There are
	// more.
	ErrPageBytes = errors.New("the page ended early")
	// ErrNotEmpty says that an app cannot be deleted because it has jobs, calendars, groups or
	// alerts.
	ErrNotEmpty = errors.New("app is not empty")
	// ErrInUse says that a calendar or a group cannot be deleted because something refers to it.
	ErrInUse = errors.New("in use")
	// ErrConflict says that the state of a thing does not allow the request.
	ErrConflict = errors.New("conflict")
	// ErrLastAdmin says that a request with a token would leave no token that can manage tokens.
	ErrLastAdmin = errors.New("it is the last token with scope admin that works")
	// ErrNodeDead says that a node was marked dead; it must register again.
	ErrNodeDead = errors.New("the node was marked dead")
	// ErrRolledBack says that a node cannot be resumed while a rollback is unresolved.
	ErrRolledBack = errors.New("the database lost commits, and nobody has chosen yet what happens to the affected " +
		"fires; see carillon rollback show, then run carillon rollback skip or carillon rollback replay")
	// ErrKeyMissing says that no key opens a stored secret.
	ErrKeyMissing = errors.New("a key-encryption key is missing")
	// ErrSchemaTooNew says that the database was migrated by a newer version.
	ErrSchemaTooNew = errors.New("the schema is newer than this version of Carillon")
)

// NotFound returns an error that names the missing thing and is ErrNotFound.
func NotFound(kind, name string) error {
	return fmt.Errorf("%s %s: %w", kind, input.Echo(name), ErrNotFound)
}
