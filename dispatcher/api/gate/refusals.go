package gate

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

const (
	// refusalsPerTurn is how many refusals of a token get an entry of their own in a turn. The others are counted, and get
	// one entry together, so that nobody fills the audit log, or keeps the database busy, with what they must not do.
	refusalsPerTurn = 10
	refusalTurn     = time.Minute
	// maxRefusals is how many entries may wait to be written, and maxRefused how many tokens are told apart in a turn.
	maxRefusals = 256
	maxRefused  = 10_000
	// refusalTime bounds the writing of an entry, and lastRefusals that of all that is left when the node ends, which
	// must not take longer because the database is unreachable.
	refusalTime  = 2 * time.Second
	lastRefusals = 500 * time.Millisecond
)

// refusals are the refused changes on their way into the audit log. A request only leaves them here: it neither waits for
// the database nor fails with it.
type refusals struct {
	store Store
	log   *slog.Logger
	queue chan access.AuditEntry
	mu    sync.Mutex
	of    map[string]*refusedToken // by token id
}

// refusedToken is what a token was refused in a turn.
type refusedToken struct {
	entries int
	latest  access.AuditEntry
	apps    map[string]bool
	more    map[string]int // refusals without an entry, by code
}

// note takes a refusal. It never waits.
func (f *refusals) note(e access.AuditEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := e.TokenID
	if f.of[id] == nil && len(f.of) >= maxRefused {
		id = ""
	}
	of := f.of[id]
	if of == nil {
		of = &refusedToken{apps: map[string]bool{}, more: map[string]int{}}
		f.of[id] = of
	}
	if of.entries < refusalsPerTurn {
		select {
		case f.queue <- e:
			of.entries++
			return
		default:
		}
	}
	of.latest = e
	of.more[e.Refused]++
	if len(of.apps) < 2 { // two are several
		of.apps[e.App] = true
	}
}

// turn begins a turn, and returns the entries for what had none in the one before.
func (f *refusals) turn() (all []access.AuditEntry) {
	f.mu.Lock()
	of := f.of
	f.of = map[string]*refusedToken{}
	f.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if one := of[id]; len(one.more) > 0 {
			all = append(all, one.summary())
		}
	}
	return all
}

// summary is the entry for refusals that have none. It belongs to an app only if all of them do.
func (t *refusedToken) summary() access.AuditEntry {
	e := t.latest
	e.Action, e.Subject, e.RequestID = access.AuditMoreRefused, "requests", ""
	if len(t.apps) > 1 {
		e.App = ""
	}
	count := 0
	for _, code := range slices.Sorted(maps.Keys(t.more)) {
		if count += t.more[code]; t.more[code] > t.more[e.Refused] {
			e.Refused = code
		}
	}
	e.After, _ = json.Marshal(map[string]any{"count": count, "codes": t.more}) // numbers by names
	return e
}

// run writes refusals into the audit log until ctx ends, and then those that are left.
func (f *refusals) run(ctx context.Context) {
	// What is being written when ctx ends, or waits then, has a little longer.
	whole, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastRefusals, end) })()
	ticker := time.NewTicker(refusalTurn)
	defer ticker.Stop()
	for {
		select {
		case e := <-f.queue:
			f.write(whole, e)
		case <-ticker.C:
			for _, e := range f.turn() {
				f.write(whole, e)
			}
		case <-ctx.Done():
			f.flush(whole)
			return
		}
	}
}

// flush writes what is left, as far as the time goes.
func (f *refusals) flush(ctx context.Context) {
	var left []access.AuditEntry
	for len(f.queue) > 0 {
		left = append(left, <-f.queue)
	}
	left = append(left, f.turn()...)
	for i, e := range left {
		if ctx.Err() != nil {
			f.log.WarnContext(ctx, "refusals not in the audit log", "count", len(left)-i)
			return
		}
		f.write(ctx, e)
	}
}

func (f *refusals) write(ctx context.Context, e access.AuditEntry) {
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	if err := f.store.RecordRefusal(ctx, e); err != nil {
		f.log.WarnContext(ctx, "refusal not in the audit log", "token", e.Actor, "token_id", e.TokenID, "request_id", e.RequestID,
			"action", e.Action, "app", e.App, "subject", e.Subject, "refused", e.Refused, "err", err)
	}
}

// changing are the scopes of routes that change something.
var changing = []access.Scope{access.ScopeWrite, access.ScopeRun, access.ScopeRegister, access.ScopeImport, access.ScopeAdmin}

// refusedStatuses are those of changes that were understood, and not allowed.
var refusedStatuses = []int{
	http.StatusForbidden, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity,
	http.StatusPreconditionRequired, http.StatusTooManyRequests,
}

// WriteRefusals writes the refusals that wait, as Run does at its end.
func (g *Gate) WriteRefusals(ctx context.Context) { g.refusals.flush(ctx) }

// NoteRefusal notes that a change of a known caller was refused. Of the body nothing is kept: it may hold secrets. Of the
// path it keeps what can be a name.
func (g *Gate) NoteRefusal(r *Request, status int, code string) {
	rt := r.route
	if !slices.Contains(changing, rt.Scope) || rt.Method == http.MethodGet || r.Token.Name == "" || r.Attempt != 0 ||
		!slices.Contains(refusedStatuses, status) {
		return
	}
	action := strings.ToLower(rt.Method)
	if rt.Method == http.MethodPost {
		action = rt.Path[strings.LastIndexByte(rt.Path, '/')+1:]
	}
	by := r.By()
	e := access.AuditEntry{
		Actor: by.Actor, TokenID: by.TokenID, Address: by.Address, RequestID: by.RequestID,
		Action: action, App: r.PathValue("app"), Subject: r.subject(), Refused: code,
	}
	if e.App == "" {
		e.App = r.App
	}
	if e.App != "" && (!input.IsName(e.App) || !r.MaySee(e.App)) {
		// Readers of the app do not learn which other tokens there are.
		e.App, e.Subject = "", e.Subject+" of app "+orInvalid(e.App, input.IsName)
	}
	g.refusals.note(e)
}

// subject is what the audit log calls what the request would change.
func (r *Request) subject() string {
	for _, kind := range []string{"run", "node", "token", "calendar", "group", "alert", "job", "app"} {
		name := r.PathValue(kind)
		if name == "" {
			continue
		}
		is := input.IsName
		if kind == "run" {
			is = run.IsID
		}
		subject := kind + " " + orInvalid(name, is)
		for _, part := range []string{"trigger", "endpoint"} {
			if name := r.PathValue(part); name != "" {
				subject += " " + part + " " + orInvalid(name, input.IsName)
			}
		}
		return subject
	}
	if strings.HasPrefix(r.URL.Path, "/v1/zones") {
		return "zones"
	}
	return "rollback"
}

// orInvalid returns a name, or, of what is none, nothing that the caller may have put there.
func orInvalid(name string, is func(string) bool) string {
	if !is(name) {
		return "(no valid name)"
	}
	return name
}
