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
	// refusalsPerTurn is how many refusals of a token get an entry of their own in a turn. The others are counted in
	// one entry, so that a caller cannot fill the audit log, or keep the database busy, with forbidden requests.
	refusalsPerTurn = 10
	refusalTurn     = time.Minute
	// maxRefusals is how many entries may wait, and maxRefused how many tokens are counted separately in a turn.
	maxRefusals = 256
	maxRefused  = 10_000
	// refusalTime bounds the writing of an entry, and lastRefusals that of all remaining ones when the node ends, which
	// must not take longer because the database is unreachable.
	refusalTime  = 2 * time.Second
	lastRefusals = 500 * time.Millisecond
)

// refusals are the refused changes on their way into the audit log. A request only leaves them here: it neither waits
// for the database nor fails with it.
type refusals struct {
	store Store
	log   *slog.Logger
	queue chan access.AuditEntry
	mu    sync.Mutex
	of    map[string]*refusedToken // by token id
}

// refusedToken is the refusals of a token in a turn.
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

// turn begins a turn, and returns the entries for the refusals without one in the turn before.
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

// summary is the entry for refusals without one. It belongs to an app only if all of them do.
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

// run writes refusals into the audit log until ctx ends, and then the remaining ones.
func (f *refusals) run(ctx context.Context) {
	// Entries that are being written when ctx ends, or wait then, have a little longer.
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

// flush writes the remaining refusals within the time of ctx.
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

// refusedStatuses are the statuses of changes that were understood, and not allowed.
var refusedStatuses = []int{
	http.StatusForbidden, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity,
	http.StatusPreconditionRequired, http.StatusTooManyRequests,
}

// WriteRefusals writes the waiting refusals, as Run does at its end.
func (g *Gate) WriteRefusals(ctx context.Context) { g.refusals.flush(ctx) }

// NoteRefusal notes that a change of a known caller was refused. It keeps nothing of the body, which may hold secrets.
// From the path it keeps parts that can be names.
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
		// Readers of the app do not learn about other tokens.
		e.App, e.Subject = "", e.Subject+" of app "+orInvalid(e.App, input.IsName)
	}
	g.refusals.note(e)
}

// subject is the name, in the audit log, of the object that the request would change.
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

// orInvalid returns a valid name, and replaces any other text, which the caller may have chosen freely.
func orInvalid(name string, is func(string) bool) string {
	if !is(name) {
		return "(no valid name)"
	}
	return name
}
