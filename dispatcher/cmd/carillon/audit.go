package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

type auditCommand struct {
	apiFlags
	outputFlags
	ofFlags
	Actor   string `placeholder:"NAME" help:"Only entries of this actor: the name or the id of a token, system or command line."`
	Action  string `placeholder:"ACTION" help:"Only this action, such as put."`
	Subject string `placeholder:"SUBJECT" help:"Only this subject, such as \"calendar holidays\". Not with a job or trigger, which is one."`
	Refused bool   `help:"Only refused changes."`
	Made    bool   `help:"Only changes that were made."`
	periodFlags
	Limit  int  `default:"100" help:"Without --since: how many of the latest entries to show, 0 to 1000."`
	Follow bool `short:"f" help:"Go on with entries as they come, also while nodes restart."`
}

func (a *auditCommand) query() (access.AuditQuery, error) {
	query := access.AuditQuery{Actor: a.Actor, Action: a.Action, Subject: a.Subject, OldestFirst: a.Follow}
	var problems []error
	err := a.selects(&query)
	if err != nil {
		problems = append(problems, err)
	}
	if a.Refused || a.Made {
		query.Refused = &a.Refused
	}
	if a.Refused && a.Made {
		problems = append(problems, errors.New("--refused and --made exclude each other; leave both out for all entries"))
	}
	if a.Follow && a.Until != "" {
		problems = append(problems, errors.New("--follow has no end; leave out --until"))
	}
	if a.Follow && a.Output == outputJSON {
		problems = append(problems, errors.New("--follow has no end, and one value of JSON has; use --output jsonl"))
	}
	if a.Limit < 0 || a.Limit > 1000 {
		problems = append(problems, fmt.Errorf("--limit: %d is not between 0 and 1000; with --since, all entries are shown", a.Limit))
	}
	if query.From, query.To, err = a.period(time.Now()); err != nil {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return query, &usageError{errors.Join(problems...)}
	}
	return query, nil
}

// selects sets the app and the subject of a query.
func (a *auditCommand) selects(query *access.AuditQuery) error {
	app, job, trigger, err := a.names()
	if app != "" {
		query.Apps = []string{app}
	}
	switch {
	case err != nil:
		return err
	case job != "" && a.Subject != "":
		return errors.New("--subject: a job or trigger is a subject; leave out one of them")
	case trigger != "":
		query.Subject = "job " + job + " trigger " + trigger
	case job != "":
		query.Subject = "job " + job
	}
	return nil
}

// Run prints entries, the latest first; with --follow, as they come.
func (a *auditCommand) Run(ctx context.Context, c console) error {
	query, err := a.query()
	if err != nil {
		return err
	}
	api, err := a.ProvideClient(ctx)
	if err != nil {
		return err
	}
	if a.Follow {
		f := &auditFollower{api: api, query: query, known: map[string]time.Time{}, emit: func(e access.AuditEntry) error {
			return a.print(c, []access.AuditEntry{e})
		}}
		if err := f.begin(ctx, a.Limit); err != nil {
			return err
		}
		return f.follow(ctx, c)
	}
	left := a.Limit
	if a.Since != "" {
		left = math.MaxInt
	}
	var all []access.AuditEntry // for output as one JSON value; else a page is printed at once, because a log may be long
	for more := true; more && left > 0; more = query.Cursor != "" {
		query.Limit = min(left, pageSize)
		page, err := api.Audit(ctx, query)
		if err != nil {
			return err
		}
		left, query.Cursor = left-len(page.Items), page.Next
		if a.Output == outputJSON {
			all = append(all, page.Items...)
		} else if err := a.print(c, page.Items); err != nil {
			return err
		}
	}
	if a.Output == outputJSON {
		return a.print(c, all)
	}
	return nil
}

func (a *auditCommand) print(c console, all []access.AuditEntry) error {
	if a.Output != outputTable {
		return printList(a.outputFlags, c, all, "", nil)
	}
	for _, e := range all {
		if _, err := fmt.Fprintln(c.out, auditLine(e)); err != nil {
			return err
		}
	}
	return nil
}

// Entries may become visible out of order, because up to a minute may pass between the time of a
// change and its commit. So a follower reads the last two minutes repeatedly and skips entries that
// it knows. To spare the database, most polls read only the last ten seconds.
const (
	auditPoll    = 2 * time.Second
	auditNear    = 10 * time.Second
	auditOverlap = 2 * time.Minute
	auditWhole   = 8 // in polls
)

// auditFollower reads the audit log as it grows.
type auditFollower struct {
	api    *client.Client
	query  access.AuditQuery
	emit   func(access.AuditEntry) error
	latest time.Time            // of the entries seen so far
	known  map[string]time.Time // entries of the last minutes, by id
}

// begin prints the existing entries: those from query.From on, or the latest ones up to limit.
func (f *auditFollower) begin(ctx context.Context, limit int) error {
	if !f.query.From.IsZero() {
		return f.read(ctx, f.query, f.show)
	}
	// Existing entries are not new, even those that are not among the latest.
	now := access.AuditQuery{Apps: f.query.Apps, Page: input.Page{Limit: 1}}
	page, err := f.api.Audit(ctx, now)
	if err != nil {
		return err
	}
	if len(page.Items) > 0 {
		f.latest = page.Items[0].At
		before := f.query
		before.From = f.latest.Add(-auditOverlap)
		if err := f.read(ctx, before, f.know); err != nil {
			return err
		}
	}
	if limit == 0 {
		return nil
	}
	latest := f.query
	latest.OldestFirst = false
	entries, _, err := allPages(limit, func(page input.Page) (client.List[access.AuditEntry], error) {
		latest.Page = page
		return f.api.Audit(ctx, latest)
	})
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(entries) {
		if err := errors.Join(f.know(e), f.emit(e)); err != nil {
			return err
		}
	}
	return nil
}

func (f *auditFollower) read(ctx context.Context, query access.AuditQuery, do func(access.AuditEntry) error) error {
	query.Limit = 1000
	for {
		page, err := f.api.Audit(ctx, query)
		if err != nil {
			return err
		}
		for _, e := range page.Items {
			if err := do(e); err != nil {
				return &printError{err}
			}
		}
		if query.Cursor = page.Next; page.Next == "" {
			return nil
		}
	}
}

// printError is an error of the output.
type printError struct{ error }

func (p *printError) Unwrap() error { return p.error }

func (f *auditFollower) know(e access.AuditEntry) error {
	f.known[e.ID] = e.At
	if e.At.After(f.latest) {
		f.latest = e.At
	}
	return nil
}

// show prints an entry unless it is known.
func (f *auditFollower) show(e access.AuditEntry) error {
	if _, seen := f.known[e.ID]; seen {
		return nil
	}
	_ = f.know(e) // never fails
	const most = 10_000
	if len(f.known) > most {
		f.forget()
	}
	return f.emit(e)
}

// forget drops the entries that no further poll reads.
func (f *auditFollower) forget() {
	maps.DeleteFunc(f.known, func(_ string, at time.Time) bool { return at.Before(f.latest.Add(-2 * auditOverlap)) })
}

// follow prints entries as they come, until ctx ends.
func (f *auditFollower) follow(ctx context.Context, c console) error {
	unreachable := false
	whole := true
	ticker := time.NewTicker(auditPoll)
	defer ticker.Stop()
	for polls := 1; ; polls++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		query, overlap := f.query, auditNear
		if whole = whole || polls%auditWhole == 0; whole {
			overlap = auditOverlap
		}
		if from := f.latest.Add(-overlap); !f.latest.IsZero() && from.After(query.From) {
			query.From = from
		}
		err := f.read(ctx, query, f.show)
		var broken *printError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &broken), isFinal(err):
			return err
		case err != nil:
			if !unreachable {
				fmt.Fprintln(c.err, "carillon: the API is unreachable, trying again:", plain(err.Error()))
			}
			unreachable, whole = true, true
			continue
		case unreachable:
			fmt.Fprintln(c.err, "carillon: the API is back")
		}
		unreachable, whole = false, false
		f.forget()
	}
}

// isFinal reports whether a retry is useless: the token is refused, or the request is invalid.
func isFinal(err error) bool {
	var refused *client.Error
	if !errors.As(err, &refused) || errors.Is(err, client.ErrForeign) {
		return false
	}
	temporary := refused.Status >= http.StatusInternalServerError || refused.Status == http.StatusTooManyRequests ||
		refused.Status == http.StatusRequestTimeout
	return !temporary
}

// auditLine formats an entry for people: when, who, from where, what, and the changed fields.
func auditLine(e access.AuditEntry) string {
	actor := e.Actor
	if e.TokenID != "" {
		actor += " (" + e.TokenID + ")"
	}
	subject := e.Subject
	if e.App != "" && e.Subject != "app "+e.App {
		subject += " of app " + e.App
	}
	parts := []string{input.FormatInstant(e.At), actor, e.Address, e.Action + " " + subject}
	if e.Revision != 0 {
		parts = append(parts, fmt.Sprint("revision ", e.Revision))
	}
	if e.Refused != "" {
		parts = append(parts, "refused: "+e.Refused)
	}
	if changed := changedFields(e); len(changed) > 0 {
		parts = append(parts, "changed: "+strings.Join(changed, ", "))
	}
	return plain(strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "  "))
}

func changedFields(e access.AuditEntry) (names []string) {
	var before, after map[string]json.RawMessage
	if e.Before == nil || e.After == nil || json.Unmarshal(e.Before, &before) != nil || json.Unmarshal(e.After, &after) != nil {
		return nil
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(before[name], after[name]) {
			names = append(names, name)
		}
	}
	return names
}
