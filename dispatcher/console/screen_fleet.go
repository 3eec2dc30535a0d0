package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

type nodesPage struct {
	Nodes []nodeRow
	// Fires is how many all nodes claimed in the latest minute.
	Fires   int
	Sorting sorting
}

type nodeRow struct {
	view.NodeAttention
	PerSecond float64
}

// Has reports whether the node needs attention for a reason.
func (n nodeRow) Has(reason dispatcher.NodeReason) bool { return slices.Contains(n.Reasons, reason) }

func showNodes(v *visit) (content, error) {
	list, err := v.client.Nodes(v.Context())
	page := nodesPage{}
	for _, node := range view.Examine(list.Items, v.Now) {
		if node.HeartbeatAt.After(v.Now) { // by the clock of this node, which may be wrong
			node.HeartbeatAt = v.Now
		}
		page.Nodes = append(page.Nodes, nodeRow{node, float64(node.Fires) / 60})
		if node.State != dispatcher.NodeDead {
			page.Fires += node.Fires
		}
	}
	page.Sorting = sorted(v, page.Nodes, map[string]func(a, b nodeRow) int{
		"node":      func(a, b nodeRow) int { return cmp.Compare(a.Name, b.Name) },
		"state":     func(a, b nodeRow) int { return cmp.Compare(a.Shown(), b.Shown()) },
		"rate":      func(a, b nodeRow) int { return cmp.Compare(a.Fires, b.Fires) },
		"in_flight": func(a, b nodeRow) int { return cmp.Compare(a.InFlight, b.InFlight) },
		"lag":       func(a, b nodeRow) int { return cmp.Compare(a.Lag, b.Lag) },
		"heartbeat": func(a, b nodeRow) int { return a.HeartbeatAt.Compare(b.HeartbeatAt) },
		"started":   func(a, b nodeRow) int { return a.StartedAt.Compare(b.StartedAt) },
	})
	return content{Data: page, Refresh: true}, err
}

// showNodeState returns the page that asks before a node gets a state.
func showNodeState(name string) func(*visit) (content, error) {
	return func(v *visit) (content, error) {
		list, err := v.client.Nodes(v.Context())
		if err != nil {
			return content{}, err
		}
		active := 0
		var found *dispatcher.Node
		for _, node := range list.Items {
			if node.State == dispatcher.NodeActive {
				active++
			}
			if node.ID.String() == v.PathValue("node") {
				found = &node
			}
		}
		if found == nil {
			return content{}, notFound("node", v.PathValue("node"))
		}
		return v.confirm(name, confirmPage{
			Facts: []fact{v.fact("nodes.in_flight", found.InFlight), v.fact("nodes.fires", found.Fires), v.fact("nodes.active", active)},
			Harm:  true, Back: v.link("nodes"),
		}, "node", found.Name), nil
	}
}

func setNode(state dispatcher.NodeState, notice string) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		id, err := run.ParseNodeID(v.PathValue("node"))
		if err != nil {
			return done{}, notFound("node", v.PathValue("node"))
		}
		node, err := v.client.SetNodeState(v.Context(), id, state)
		return done{to: v.link("nodes"), notice: notice, values: []any{"node", node.Name}}, err
	}
}

// rollbackPage is the unresolved rollback, or nil.
type rollbackPage struct{ *dispatcher.Rollback }

func showRollback(v *visit) (content, error) {
	found, err := v.client.Rollback(v.Context())
	if errors.Is(err, dispatcher.ErrNotFound) {
		return content{Data: rollbackPage{}, Refresh: true}, nil
	}
	return content{Data: rollbackPage{&found}, Refresh: true}, err
}

// Fires and Runs are how many the choice decides about, with a plus if there are more.
func (p rollbackPage) Fires() string {
	return p.sum(func(of dispatcher.RollbackApp) int { return of.Fires })
}

// Runs is how many live runs; see Fires.
func (p rollbackPage) Runs() string {
	return p.sum(func(of dispatcher.RollbackApp) int { return of.Runs })
}

func (p rollbackPage) sum(of func(dispatcher.RollbackApp) int) string {
	if p.Effect == nil {
		return "–"
	}
	total := 0
	for _, app := range p.Effect.Apps {
		total += of(app)
	}
	text := kit.GroupDigits(int64(total))
	if p.Effect.More {
		text += "+"
	}
	return text
}

// showRollbackChoice returns the page that asks before a rollback is resolved.
func showRollbackChoice(choice dispatcher.RollbackChoice) func(*visit) (content, error) {
	return func(v *visit) (content, error) {
		found, err := v.client.Rollback(v.Context())
		if err != nil {
			return content{}, err
		}
		page := rollbackPage{&found}
		facts := []fact{v.fact("rollback.at", v.TimeHTML(found.At)), v.fact("rollback.reason", found.Reason)}
		if found.Effect != nil {
			facts = append(facts, v.fact("rollback.latest", v.TimeHTML(found.Effect.LatestRunAt)),
				v.fact("rollback.fires", page.Fires()), v.fact("rollback.runs", page.Runs()))
		}
		return v.confirm("rollback_"+string(choice), confirmPage{Facts: facts, Harm: true, Back: v.link("rollback")}), nil
	}
}

func resolveRollback(choice dispatcher.RollbackChoice) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		_, err := v.client.ResolveRollback(v.Context(), choice)
		return done{to: v.link("rollback"), notice: "rollback.notice." + string(choice)}, err
	}
}

// statisticsPage is the results of the runs of each day.
type statisticsPage struct {
	App    string
	Days   []kit.DayRow
	Spans  []int // the numbers of days that a person can choose
	Span   int
	Until  time.Time
	Chart  kit.DayChart
	States []run.State
}

func showStatistics(v *visit) (content, error) {
	f := v.fields()
	page := statisticsPage{App: f.Text("app"), Spans: []int{7, 30, 90}, Span: f.Number("days", 30), States: kit.FinalStates()}
	page.Span = min(max(page.Span, 1), 90)
	err := f.Err()
	var found view.Statistics
	if err == nil {
		found, err = v.client.Statistics(v.Context(), page.App, v.Now.AddDate(0, 0, 1-page.Span), v.Now)
	}
	page.Until = found.CountedTo
	for _, day := range found.Days {
		row := kit.DayRow{DayStatistics: day}
		for _, n := range day.Runs {
			row.Total += n
		}
		page.Days = append(page.Days, row)
	}
	page.Chart = kit.ChartOfDays(page.Days, v.Now, page.Span)
	return v.filtered(content{Data: page}, err)
}

func showAudit(v *visit) (content, error) {
	f := v.fields()
	names := []string{"app", "actor", "action", "subject", "refused", "from", "to", "order"}
	query := access.AuditQuery{Actor: f.Text("actor"), Action: f.Text("action"), Subject: f.Text("subject"), From: f.Instant("from"),
		To: f.Instant("to"), OldestFirst: f.Text("order") == "oldest", Page: v.page()}
	if app := f.Text("app"); app != "" {
		query.Apps = []string{app}
	}
	if refused, err := strconv.ParseBool(f.Text("refused")); err == nil {
		query.Refused = &refused
	}
	var list client.List[access.AuditEntry]
	err := f.Err()
	if err == nil {
		list, err = v.client.Audit(v.Context(), query)
	}
	return v.filtered(content{Data: listOf(v, list, f.All(names...))}, err)
}

// auditEntryPage is one entry with the values before and after it.
type auditEntryPage struct {
	access.AuditEntry
	BeforeText, AfterText string
	Changed               []changedAttribute
}

func showAuditEntry(v *visit) (content, error) {
	entry, err := v.auditEntry(v.PathValue("entry"))
	page := auditEntryPage{entry, indented(entry.Before), indented(entry.After), nil}
	if entry.Before != nil && entry.After != nil {
		page.Changed = changedAttributes(entry.Before, entry.After)
	}
	return content{Data: page}, err
}

// indented returns JSON in a readable form. The numbers stay as they are stored.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return shownJSON(b.Bytes())
}

// shownJSON returns JSON without the escapes for HTML that its encoder adds.
func shownJSON(raw []byte) string {
	return strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(raw))
}

type tokensPage struct {
	Tokens []tokenRow
	More   string
}

type tokenRow struct {
	access.APIToken
	State string
}

func showTokens(v *visit) (content, error) {
	list, err := v.client.Tokens(v.Context(), v.page())
	page := tokensPage{More: v.more(list.Next)}
	for _, token := range list.Items {
		row := tokenRow{token, "valid"}
		if token.Expired(v.Now) {
			row.State = "expired"
		}
		page.Tokens = append(page.Tokens, row)
	}
	return content{Data: page}, err
}

type newTokenPage struct{ Scopes []scopeChoice }

type scopeChoice struct {
	Scope   access.Scope
	Checked bool
}

func showNewToken(v *visit) (content, error) {
	page := newTokenPage{}
	for _, scope := range access.Scopes() {
		given := access.APIToken{}
		for _, one := range v.PostForm["scope"] {
			given.Scopes = append(given.Scopes, access.Scope(one))
		}
		page.Scopes = append(page.Scopes, scopeChoice{scope, given.May(scope)})
	}
	return content{Data: page}, nil
}

// secretPage shows the secret of a token, once.
type secretPage struct{ access.IssuedToken }

func createToken(v *visit) (done, error) {
	f := v.fields()
	token := access.APIToken{Name: f.Text("name"), TokenSpec: access.TokenSpec{Description: f.Text("description"), Apps: f.List("apps"),
		ExpiresAt: f.Until("for", v.Now)}}
	for _, scope := range v.PostForm["scope"] {
		token.Scopes = append(token.Scopes, access.Scope(scope))
	}
	input.CheckName(&f.Problems, "/name", token.Name) // it becomes a part of the request's path
	if err := f.Err(); err != nil {
		return done{}, err
	}
	issued, err := v.client.PutToken(v.Context(), token, client.Condition{Absent: true})
	return done{page: "token_secret", content: content{Data: secretPage{issued}}}, err
}

// tokenConfirm asks before an action on a token. The form sends the token's revision, so that the action applies to the
// token that the person has seen.
func (v *visit) tokenConfirm(name string, page confirmPage) (content, error) {
	token, err := v.client.Token(v.Context(), v.PathValue("token"))
	if err != nil {
		return content{}, err
	}
	scopes := make([]string, len(token.Scopes))
	for i, scope := range token.Scopes {
		scopes[i] = string(scope)
	}
	apps := strings.Join(token.Apps, ", ")
	if apps == "" {
		apps = v.Texts.Text("tokens.all_apps")
	}
	page.Facts = []fact{v.fact("tokens.scopes", strings.Join(scopes, ", ")), v.fact("tokens.apps", apps)}
	page.Fields = url.Values{"revision": {strconv.FormatInt(token.Revision, 10)}}
	page.Harm, page.Back = true, v.link("tokens")
	return v.confirm(name, page, "token", token.Name), nil
}

func showTokenRotation(v *visit) (content, error) {
	return v.tokenConfirm("token_rotate", confirmPage{Asks: []ask{v.ask("overlap", "token_rotate.overlap", "24h")}})
}

func rotateToken(v *visit) (done, error) {
	f := v.fields()
	rotation := access.TokenRotation{Overlap: f.Duration("overlap")}
	if err := f.Err(); err != nil {
		return done{}, err
	}
	issued, err := v.client.RotateToken(v.Context(), v.PathValue("token"), rotation)
	return done{page: "token_secret", content: content{Data: secretPage{issued}}}, err
}

func showTokenRevocation(v *visit) (content, error) {
	return v.tokenConfirm("token_revoke", confirmPage{})
}

func revokeToken(v *visit) (done, error) {
	name := v.PathValue("token")
	seen, err := v.seen()
	if err != nil {
		return done{}, err
	}
	err = v.client.DeleteToken(v.Context(), name, seen)
	return done{to: v.link("tokens"), notice: "tokens.notice.revoked", values: []any{"token", name}}, err
}
