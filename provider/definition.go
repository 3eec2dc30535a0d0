package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// definition is a kind of object that a configuration defines, such as alerts, as one row with the
// differences between kinds. T is its type in the domain. Unneeded functions are nil. The methods
// implement kind in the same way for every row.
type definition[T any] struct {
	heading
	conn    *connection
	check   func(T) error // with the rules of the domain
	api     requests[T]
	secrets secretsOf[T]
	// shown returns the part of a stored definition that Terraform shows; prior are the values that they replace.
	shown func(stored T, prior binding.Values) T
	// bounds returns the problems of a definition that exceeds the bounds of its app.
	bounds func(*target.Bounds, T) error
	// planning makes further checks at plan, and records the planned definition.
	planning func(*plan.Plan, context.Context, *diag.Diagnostics, plan.Definition[T])
	// onRead and onWrite warn about a definition that was read or written, or record it.
	onRead, onWrite func(*connection, *diag.Diagnostics, T)
	// leaving, if not nil, reports whether a definition waits to be deleted with its last use, and so counts as deleted.
	leaving func(T) bool
}

// requests are the API requests of a kind.
type requests[T any] struct {
	put      func(*client.Client, context.Context, T, client.Condition) (T, error)
	get      func(c *client.Client, ctx context.Context, app, name string) (T, error)
	remove   func(c *client.Client, ctx context.Context, app, name string, cond client.Condition) error
	revision func(T) int64
}

// secretsOf has the functions for the secrets of a kind.
type secretsOf[T any] struct {
	// checkKept returns a problem for each secret that keeps its stored value although it would be sent elsewhere.
	checkKept func(written, old T) error
	// destination reports whether the destination of the secret at a pointer is known.
	destination func(e *binding.Expander, pointer string) bool
}

// identity is a definition's name in requests and messages, and its revision in the state.
type identity struct {
	app, name string
	importID  string
	revision  int64
}

// identityOf returns the identity of a definition. An app has no other app.
func identityOf(v binding.Values) identity {
	app, name := v.Text("app"), v.Text("name")
	id := identity{app: app.ValueString(), name: name.ValueString(), revision: v.Revision().ValueInt64()}
	if id.importID = id.name; v["app"] != nil {
		id.importID = importID(app, name)
	}
	return id
}

// expand returns the definition in Terraform values.
func (d *definition[T]) expand(e *binding.Expander, v binding.Values) T {
	one := d.rows.Fresh().(*T)
	d.rows.Expand(e, "", v, one)
	return *one
}

// flatten returns the values of a stored definition. prior is the plan or state that they replace.
func (d *definition[T]) flatten(diags *diag.Diagnostics, stored T, prior binding.Values) binding.Values {
	if d.shown != nil {
		stored = d.shown(stored, prior)
	}
	return d.rows.Flatten(diags, &stored, prior)
}

func (d *definition[T]) validate(_ context.Context, diags *diag.Diagnostics, config binding.Values) {
	var e binding.Expander
	declared := d.expand(&e, config)
	if d.secrets.checkKept != nil { // the plan knows whether a stored value exists
		declared = target.WithSecrets(declared, withOmitted(target.Secrets(declared)))
	}
	var problems input.Problems
	if d.kind != appKind {
		input.CheckName(&problems, "/app", identityOf(config).app) // check omits it: the API has it in the URL
	}
	problems.AddError("", d.check(declared))
	reportProblems(diags, e.ProblemsWith(problems.Err()))
}

// planned refuses problems that need the state or the app: a secret without a value, a stored secret that would
// be sent elsewhere, and a violation of bounds. It marks the revision as unknown only if something changes.
func (d *definition[T]) planned(ctx context.Context, diags *diag.Diagnostics, change change) binding.Values {
	if d.conn == nil {
		return change.plan
	}
	if d.conn.meet(ctx, diags); diags.HasError() {
		return change.plan
	}
	var e binding.Expander
	declared := d.expand(&e, change.config)
	if d.kind != appKind {
		d.conn.WarnOfMissingApp(ctx, diags, change.plan.Text("app").ValueString())
	}
	before := d.before(change)
	reportProblems(diags, d.missingSecrets(&e, declared, change.config, before))
	d.checkBounds(ctx, diags, &e, change.config, declared)
	shown := change.plan.With("revision", change.state["revision"])
	shown["id"] = shown["name"] // of an app
	if shown["app"] != nil {
		shown["id"] = plannedID(shown.Text("app"), shown.Text("name"))
	}
	changes := change.isNew || !shown.Equal(change.state) // another spelling is no change
	if changes {
		shown["revision"] = types.Int64Unknown()
	}
	if d.planning != nil {
		planned := plan.Definition[T]{Declared: declared, E: &e, IsNew: change.isNew, Changes: changes}
		if before != nil {
			planned.Before = new(d.expand(&binding.Expander{}, *before))
		} else {
			planned.Replaces = identityOf(change.state).importID
		}
		d.planning(d.conn.Plan, ctx, diags, planned)
	}
	if before != nil {
		reportProblems(diags, d.keptSecrets(change.plan, change.config, *before))
	}
	if diags.HasError() {
		return change.plan
	}
	return shown
}

// before returns the model that a change updates. It returns nil if the change creates a
// definition, also as a replacement of one with another name.
func (d *definition[T]) before(change change) *binding.Values {
	if change.isNew || identityOf(change.config).importID != identityOf(change.state).importID {
		return nil
	}
	return &change.state
}

// checkBounds refuses a definition outside the bounds of its app, as far as both are known.
func (d *definition[T]) checkBounds(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, config binding.Values, declared T) {
	if d.bounds == nil {
		return
	}
	bounds := d.conn.BoundsOf(ctx, identityOf(config).app)
	if e.IsUnknown("/app") || bounds == nil || diags.HasError() {
		return
	}
	reportProblems(diags, (&binding.Expander{Unknown: e.Unknown, Incomplete: e.Incomplete}).ProblemsWith(d.bounds(bounds, declared)))
}

func (d *definition[T]) read(
	ctx context.Context, diags *diag.Diagnostics, state binding.Values, _ *private,
) (model binding.Values, found bool) {
	if !d.conn.ready(diags) {
		return model, false
	}
	id := identityOf(state)
	stored, err := d.api.get(d.conn.Client, ctx, id.app, id.name)
	if client.IsNotFound(err) || err == nil && d.leaving != nil && d.leaving(stored) { // so the plan creates it again
		return model, false
	}
	if err != nil {
		d.conn.report(diags, fmt.Sprintf("read %s %q", d.kind, id.importID), err)
		return model, false
	}
	if d.onRead != nil {
		d.onRead(d.conn, diags, stored)
	}
	return d.flatten(diags, stored, state), true
}

func (d *definition[T]) written(ctx context.Context, diags *diag.Diagnostics, change change) (model binding.Values, done bool) {
	if !d.conn.ready(diags) {
		return model, false
	}
	condition, before := client.Condition{Absent: true}, d.before(change)
	if !change.isNew {
		condition = client.Condition{Revision: identityOf(change.state).revision}
	}
	// Values that were unknown at plan may have problems, which are reported before any request.
	declared, problems := d.toWrite(change.plan, change.config, before)
	if reportProblems(diags, problems); diags.HasError() {
		return model, false
	}
	stored, err := d.api.put(d.conn.Client, ctx, declared, condition)
	if d.leaving != nil && condition.Absent && errors.Is(err, dispatcher.ErrPrecondition) { // as after -replace
		id := identityOf(change.plan)
		if found, unread := d.api.get(d.conn.Client, ctx, id.app, id.name); unread == nil && d.leaving(found) {
			stored, err = d.api.put(d.conn.Client, ctx, declared, client.Condition{Revision: d.api.revision(found)})
		}
	}
	if err != nil {
		d.reportWrite(ctx, diags, change, err)
		return model, false
	}
	if d.onWrite != nil {
		d.onWrite(d.conn, diags, stored)
	}
	model = d.flatten(diags, stored, change.plan)
	return model, !diags.HasError()
}

// toWrite returns the planned definition with the secrets to send, and its problems. before is nil
// for a new definition.
func (d *definition[T]) toWrite(plan, config binding.Values, before *binding.Values) (T, input.Problems) {
	var e binding.Expander
	declared := d.expand(&e, plan)
	if d.secrets.checkKept != nil {
		declared = target.WithSecrets(declared, d.secretsToWrite(&e, declared, config, before))
	}
	return declared, e.ProblemsWith(d.check(declared))
}

// reportWrite reports why a definition was not created or updated.
func (d *definition[T]) reportWrite(ctx context.Context, diags *diag.Diagnostics, change change, err error) {
	switch id := identityOf(change.state); {
	case change.isNew:
		d.conn.reportCreate(diags, d.kind, identityOf(change.plan).importID, err)
	case isConflict(err):
		d.reportConflict(ctx, diags, id, err)
	default:
		d.conn.report(diags, fmt.Sprintf("update %s %q", d.kind, id.importID), err)
	}
}

// reportConflict reports an update or delete that was refused because the definition changed after
// the plan. It reads the definition again, so that the error can name both revisions.
func (d *definition[T]) reportConflict(ctx context.Context, diags *diag.Diagnostics, planned identity, refused error) {
	const again = "Nothing was written. Run terraform plan again to see what changed."
	current, err := d.api.get(d.conn.Client, ctx, planned.app, planned.name)
	switch {
	case client.IsNotFound(err):
		diags.AddError(fmt.Sprintf("The %s was deleted outside of Terraform", d.kind),
			fmt.Sprintf("The plan was made for revision %d of %s %q, which no longer exists%s. %s",
				planned.revision, d.kind, planned.importID, doneBy("deleted", refused), again))
	case err != nil:
		d.conn.report(diags, fmt.Sprintf("read %s %q, which changed outside of Terraform,", d.kind, planned.importID), err)
	default:
		diags.AddError(fmt.Sprintf("The %s was changed outside of Terraform", d.kind),
			fmt.Sprintf("The plan was made for revision %d of %s %q, but it is now at revision %d%s. %s",
				planned.revision, d.kind, planned.importID, d.api.revision(current), doneBy("changed", refused), again))
	}
}

func (d *definition[T]) deleted(ctx context.Context, diags *diag.Diagnostics, state binding.Values, _ private) {
	if !d.conn.ready(diags) {
		return
	}
	id := identityOf(state)
	err := d.api.remove(d.conn.Client, ctx, id.app, id.name, client.Condition{Revision: id.revision})
	switch {
	case err == nil || client.IsNotFound(err): // already deleted, so nothing is left to do
	case isConflict(err):
		d.reportConflict(ctx, diags, id, err)
	default:
		d.conn.report(diags, fmt.Sprintf("delete %s %q", d.kind, id.importID), err)
	}
}

// secretsToWrite returns the secrets of a planned definition, by pointer. A reference is written as it is. A value
// is sent only if the secret is new or its value_version changed; otherwise the API is told to keep the stored one,
// which Terraform does not know. e must have expanded declared, and before is nil for a new definition.
func (d *definition[T]) secretsToWrite(e *binding.Expander, declared T, config binding.Values,
	before *binding.Values) map[string]target.Secret {
	var eBefore binding.Expander
	var stored map[string]target.Secret
	if before != nil {
		stored = target.Secrets(d.expand(&eBefore, *before))
	}
	planned, configured := target.Secrets(declared), target.Secrets(d.expand(&binding.Expander{}, config))
	for pointer, secret := range planned {
		if secret.Reference != "" {
			continue
		}
		old, exists := stored[pointer]
		if exists && old.Reference == "" && eBefore.Versions[pointer].Equal(e.Versions[pointer]) {
			planned[pointer] = target.Secret{Stored: true}
		} else {
			planned[pointer] = configured[pointer]
		}
	}
	return planned
}

// missingSecrets returns a problem for each secret with neither reference nor value, unless the
// definition in the state has a stored value to keep. e must have expanded declared.
func (d *definition[T]) missingSecrets(e *binding.Expander, declared T, config binding.Values,
	before *binding.Values) input.Problems {
	if d.secrets.checkKept == nil || !slices.Contains(slices.Collect(maps.Values(target.Secrets(declared))), target.Secret{}) {
		return nil
	}
	secrets := d.secretsToWrite(e, declared, config, before)
	var problems, missing input.Problems
	problems.AddError("", d.check(target.WithSecrets(declared, secrets)))
	for _, p := range e.AboutKnown(problems) {
		if secret, is := secrets[p.Path]; is && secret == (target.Secret{}) {
			missing = append(missing, p)
		}
	}
	return missing
}

// keptSecrets returns a problem for each secret that would keep its stored value although it is now sent to another
// server, network or port. Each points to the value_version, which must change so that the value is sent again.
func (d *definition[T]) keptSecrets(plan, config, state binding.Values) input.Problems {
	if d.secrets.checkKept == nil {
		return nil
	}
	var e binding.Expander
	declared, old := d.expand(&e, plan), d.expand(&binding.Expander{}, state)
	stored := target.Secrets(old)
	for pointer, secret := range stored {
		if secret.Reference == "" {
			stored[pointer] = target.Secret{Stored: true}
		}
	}
	written := target.WithSecrets(declared, d.secretsToWrite(&e, declared, config, &state))
	var problems input.Problems
	problems.AddError("", d.secrets.checkKept(written, target.WithSecrets(old, stored)))
	problems = slices.DeleteFunc(problems, func(p input.Problem) bool { return !d.secrets.destination(&e, p.Path) }) // known at apply
	for i, p := range problems {
		problems[i].Path = strings.TrimSuffix(p.Path, "/stored") + "/value_version"
	}
	return problems
}

// withOmitted returns secrets as if each with neither reference nor value had a stored value.
// Terraform generates such configuration for imported secrets, because it cannot know the values.
func withOmitted(secrets map[string]target.Secret) map[string]target.Secret {
	for pointer, secret := range secrets {
		if secret == (target.Secret{}) {
			secrets[pointer] = target.Secret{Stored: true}
		}
	}
	return secrets
}

// webhookKnown reports whether the destination of the webhook with a secret at a pointer is known.
func webhookKnown(e *binding.Expander, pointer string) bool {
	at, _, _ := strings.Cut(pointer, "/webhook/")
	return e.AllKnown(at+"/webhook/url") && e.AllKnown(at+"/webhook/auth/oauth2/token_url")
}

// named has the common fields of definitions that belong to an app.
type named struct {
	app, name, description *string
	revision               *int64
}

// definitionRows are the rows that all kinds of definitions share.
func definitionRows[P any](kind string, of func(P) *named) binding.RowPart {
	const id = "The import id, `app/%s`."
	return binding.Within(of,
		binding.Shown("id", func(n *named) string { return *n.app + "/" + *n.name }, binding.Computed, fmt.Sprintf(id, kind),
			binding.Data(fmt.Sprintf(id, kind))),
		appRow(kind, func(n *named) *string { return n.app }),
		nameRow(kind, func(n *named) *string { return n.name }),
		descriptionRow(func(n *named) *string { return n.description }),
		revisionRow(kind, "", func(n *named) *int64 { return n.revision }),
	)
}

func appRow[P any](kind string, field func(P) *string) *binding.Row {
	return binding.Text("app", field, binding.Required,
		"Name of the app. Refer to the resource, `carillon_app.NAME.name`, so that Terraform creates "+
			"it first. Changing it replaces the "+kind+".", replaces(), binding.Data("Name of the app."), binding.AskedFor)
}

func nameRow[P any](kind string, field func(P) *string) *binding.Row {
	return binding.Text("name", field, binding.Required, "Name of the "+kind+": "+binding.NameRule+". Changing it replaces the "+kind+".",
		replaces(), binding.Data("Name of the "+kind+"."), binding.AskedFor)
}

func descriptionRow[P any](field func(P) *string) *binding.Row {
	return binding.Text("description", field, binding.Default, "Free text of at most 1024 characters. Default: empty.", binding.EmptyIsValue,
		binding.Data("Free text."))
}

// revisionRow is the row of the revision. including names changes that are easily overlooked, if any.
func revisionRow[P any](kind, including string, field func(P) *int64) *binding.Row {
	return binding.Counter("revision", field, "Number of the current version of the "+kind+". Every change adds one"+including+
		". An update planned for another revision is refused.", binding.Data("Number of the current version of the "+kind+"."))
}

// replaces is for attributes that cannot be updated.
func replaces() binding.Option { return binding.Modified(stringplanmodifier.RequiresReplace()) }

// either lists words for a description: `A`, `B` or `C`.
func either[S ~string](words []S) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString("`" + string(word) + "`")
	}
	return b.String()
}
