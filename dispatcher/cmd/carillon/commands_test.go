package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// commandRow is a test of a command against a server.
type commandRow struct {
	args string // {run}, {at} and {n}, which counts up, are replaced
	// needs is the scope that the command requires; without it, the exit code is 5.
	needs access.Scope
	code  int // with that scope
	input string
	// schema is the schema in openapi.json of the output of -o json. Empty: the command has no result.
	schema string
	// local is why the command calls no server; then the rest is empty.
	local string
}

// commandRows has a row for each command. Other tests check the effects of commands.
func commandRows() map[string]commandRow {
	const read, operate, write, admin = access.ScopeRead, access.ScopeRun, access.ScopeWrite, access.ScopeAdmin
	return map[string]commandRow{
		"alert acknowledge":      {args: "shop/channel orders", needs: operate, schema: "AlertStateList", code: exitConflict},
		"alert events":           {args: "shop --since 24h", needs: read, schema: "AlertEventList"},
		"alert firing":           {args: "shop --alert channel", needs: read, schema: "AlertStateList"},
		"alert list":             {args: "shop", needs: read, schema: "AlertList"},
		"alert mute":             {args: "shop/channel --until 8h --reason x", needs: write, schema: "Alert"},
		"alert show":             {args: "shop/channel", needs: read, schema: "Alert"},
		"alert test":             {args: "shop/channel", needs: operate, schema: "Run"},
		"alert unacknowledge":    {args: "shop/channel orders", needs: operate, schema: "AlertStateList", code: exitConflict},
		"alert unmute":           {args: "shop/channel", needs: write, schema: "Alert"},
		"app defaults":           {args: "shop", needs: read, schema: "JobDefaults"},
		"app bounds":             {args: "shop", needs: read, schema: "Bounds"},
		"app list":               {needs: read, schema: "AppList"},
		"app export":             {args: "moved", needs: access.ScopeExport, schema: "Export"},
		"app import":             {needs: access.ScopeImport, input: `{"app": {"name": "moved"}}`, code: exitFailure},
		"app resume":             {args: "suspended", needs: admin},
		"app show":               {args: "shop", needs: read, schema: "App"},
		"app suspend":            {args: "moved --reason x\u202e", needs: admin},
		"attention":              {args: "shop", needs: read, schema: "Attention"},
		"audit":                  {args: "--limit 1000", needs: read, schema: "AuditEntryList"},
		"backfill cancel":        {args: "shop/{backfill}", needs: operate, code: exitConflict},
		"backfill list":          {args: "shop/orders", needs: read, schema: "BackfillList"},
		"backfill pause":         {args: "shop/{backfill}", needs: operate, code: exitConflict},
		"backfill resume":        {args: "shop/{backfill}", needs: operate, code: exitConflict},
		"backfill show":          {args: "shop/{backfill}", needs: read, schema: "Backfill"},
		"backfill start":         {args: "shop/orders --dry-run " + emptyRange, needs: operate, schema: "BackfillCount"},
		"backfill watch":         {args: "shop/{backfill}", needs: read, schema: "Backfill"},
		"bulk cancel":            {args: "shop/{bulk}", needs: operate, code: exitConflict},
		"bulk list":              {args: "shop", needs: read, schema: "BulkActionList"},
		"bulk show":              {args: "shop/{bulk}", needs: read, schema: "BulkAction"},
		"bulk start":             {args: "shop run_jobs --name none --dry-run", needs: operate, schema: "BulkCount"},
		"bulk watch":             {args: "shop/{bulk}", needs: read, schema: "BulkAction"},
		"calendar list":          {args: "shop", needs: read, schema: "CalendarList"},
		"calendar show":          {args: "shop/holidays", needs: read, schema: "Calendar"},
		"completion":             {local: "it knows its own commands"},
		"context delete":         {local: "it changes a file"},
		"context list":           {local: "it shows a file"},
		"context set":            {local: "it changes a file"},
		"context show":           {local: "it shows a file"},
		"context use":            {local: "it changes a file"},
		"dead-letter list":       {args: "shop --state failed", needs: read, schema: "RunList"},
		"dead-letter replay":     {args: "shop/orders --dry-run", needs: operate, schema: "DeadLetterCount"},
		"dev":                    {local: "it is a server"},
		"diff":                   {args: "../../tfconfig/testdata/write", needs: read, code: exitNegative},
		"doctor":                 {local: "it examines the machine of a node"},
		"endpoint drain":         {args: "shop/workers w-1", needs: write, schema: "Endpoint"},
		"endpoint list":          {args: "shop/workers", needs: read, schema: "EndpointList"},
		"endpoint resume":        {args: "shop/workers w-1", needs: write, schema: "Endpoint"},
		"explain":                {args: "shop/orders/nightly {at}", needs: read, schema: "Explanation"},
		"export":                 {args: "shop", needs: read},
		"group delete":           {args: "shop/workers", needs: write, code: exitConflict},
		"group list":             {args: "shop", needs: read, schema: "EndpointGroupList"},
		"group status":           {args: "shop/workers", needs: read, schema: "GroupStatus"},
		"group show":             {args: "shop/workers", needs: read, schema: "EndpointGroup"},
		"job list":               {args: "shop --label team=payments", needs: read, schema: "JobSummaryList"},
		"job pause":              {args: "shop/orders/nightly", needs: write, schema: "Job"},
		"job rename":             {args: "shop/orders orders", needs: write, code: exitFailure},
		"job resume":             {args: "shop/orders/nightly", needs: write, schema: "Job"},
		"job run":                {args: "shop/orders", needs: operate, schema: "Run"},
		"job show":               {args: "shop/orders", needs: read, schema: "Job"},
		"job state clear":        {args: "shop/carrier", needs: write, schema: "CarriedState"},
		"job state set":          {args: `shop/carrier {"cursor":7}`, needs: write, schema: "CarriedState"},
		"job state show":         {args: "shop/carrier", needs: read, schema: "CarriedState"},
		"job strip":              {args: "shop/orders/nightly --past 0", needs: read, schema: "Strip"},
		"lifecycle ec2":          {local: "it asks the machine"},
		"lint":                   {local: "it reads files"},
		"migrate":                {local: "it changes the schema of a database"},
		"objective list":         {args: "shop", needs: read, schema: "ObjectiveStatusList"},
		"objective show":         {args: "shop/carrier", needs: read, schema: "ObjectiveStatus"},
		"misfire list":           {args: "shop", needs: read, schema: "MisfireList"},
		"next":                   {args: "shop", needs: read},
		"node drain":             {args: "017bf3d1bf2ea5bd", needs: admin, code: exitMissing},
		"node list":              {needs: read, schema: "NodeList"},
		"node pause":             {args: "017bf3d1bf2ea5bd", needs: admin, code: exitMissing},
		"node resume":            {args: "017bf3d1bf2ea5bd", needs: admin, code: exitMissing},
		"open":                   {local: "it prints an address, and needs no right for that"},
		"pause add":              {args: "shop --label team=payments --until 1h", needs: write, schema: "AppPause"},
		"pause list":             {args: "shop", needs: read},
		"pause remove":           {args: "shop none", needs: write, code: exitMissing},
		"probe":                  {local: "it asks the node on this machine, without a token"},
		"rollback declare":       {local: "it works in the database, where no node runs yet"},
		"rollback replay":        {needs: admin, code: exitConflict},
		"rollback show":          {needs: read},
		"rollback skip":          {needs: admin, code: exitConflict},
		"run cancel":             {args: "{run}", needs: operate, code: exitConflict},
		"run complete":           {args: "{run}", needs: operate, code: exitConflict},
		"run fail":               {args: "{run}", needs: operate, code: exitConflict},
		"run log":                {args: "{run}", needs: read, code: exitConflict},
		"run list":               {args: "shop --failed --since 1h", needs: read, schema: "RunList"},
		"run retry":              {args: "{run} --wait", needs: operate, code: exitNegative, schema: "Run"},
		"run show":               {args: "{run} --body", needs: read, schema: "Run"},
		"run watch":              {args: "{run}", needs: read, code: exitNegative, schema: "Run"},
		"schedule dst-report":    {local: "it examines a file or a database"},
		"schedule next":          {local: "it evaluates an expression"},
		"secret key":             {local: "it draws a random number"},
		"secret rewrap":          {local: "it needs the keys of the nodes and their database"},
		"serve":                  {local: "it is the server"},
		"slot release":           {args: "shop/orders --reason stuck", needs: operate, schema: "Run", code: exitConflict},
		"slot list":              {args: "shop/orders", needs: read, schema: "SlotList"},
		"statistics":             {args: "shop --since 24h", needs: read, schema: "Statistics"},
		"tail":                   {local: "it does not end; its own test has the rights"},
		"token create":           {args: "--name made-{n}", needs: admin, schema: "IssuedToken"},
		"token list":             {needs: admin, schema: "TokenList"},
		"token revoke":           {args: "spare", needs: admin},
		"token rotate":           {args: "other --overlap 1h", needs: admin, schema: "IssuedToken"},
		"token show":             {args: "reader", needs: admin, schema: "Token"},
		"verify":                 {args: "shop", needs: read, schema: "VerifyPage"},
		"version":                {local: "it knows its own version"},
		"schedule tzdata-report": {local: "it examines a file or a database"},
		"zones reset":            {needs: admin, schema: "ZoneStatus"},
		"zones show":             {needs: read, schema: "ZoneStatus"},
		"zones use":              {args: schedule.ZonesVersion(), needs: admin, schema: "ZoneStatus"},
	}
}

// Texts that would control a terminal, or show something false. The API refuses control characters
// in its own texts, but a target may send any.
const (
	hostile       = "innocent\nfile\u202etxt.exe\u2066\u200b\ttabbed"
	hostileTarget = "\x1b]0;owned\x07\x1b[2J\u009b31m" + hostile
)

// shop is a server with one object of each kind, with hostile texts, and a token for each role.
type shop struct {
	*process
	run    string // a failed run
	filled string // a finished backfill
	bulk   string // a finished bulk action
	tokens map[string]string
}

// emptyRange contains no scheduled time of the job.
const emptyRange = "--from 2020-01-01T00:00:01Z --to 2020-01-01T00:00:01Z"

// roles are the roles that try each command, with the scopes of their tokens.
func roles() map[string][]access.Scope {
	return map[string][]access.Scope{
		"without": {access.ScopeMetrics}, "reader": {access.ScopeRead},
		"writer": {access.ScopeRead, access.ScopeRun, access.ScopeWrite}, "admin": access.Scopes(),
	}
}

func newShop(t *testing.T) *shop {
	t.Helper()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	s := &shop{process: startNode(t, database, newToken(t, database), quick()...), tokens: map[string]string{}}
	r := newReceiver(t, func(w http.ResponseWriter, _ arrival) {
		w.Header().Set("X-Request-Id", "id\u202e")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, hostileTarget+"\n"+hostileTarget)
	})
	ctx := t.Context()
	for _, app := range []string{"shop", "moved", "suspended"} {
		must[access.App](t)(s.PutApp(ctx, access.App{Name: app,
			AppSpec: access.AppSpec{Description: hostile, Enabled: true}}, client.Condition{}))
	}
	must[dispatcher.Calendar](t)(s.PutCalendar(ctx, dispatcher.Calendar{App: "shop", Name: "holidays",
		CalendarSpec: dispatcher.CalendarSpec{Description: hostile,
			Rules: []schedule.CalendarRule{{Dates: []string{"12-25"}}}}}, client.Condition{}))
	s.addGroups(t)
	s.addAlert(t, r.URL)
	job := webhookJob("shop", "orders", r.URL, map[string]string{"nightly": "0 30 6 * * ?"})
	job.Description = hostile
	job.Labels = input.Labels{"team": "payments", "tier": "one"}
	nightly := job.Triggers["nightly"]
	nightly.Timezone = "Europe/Berlin"
	job.Triggers["nightly"] = nightly
	must[dispatcher.Job](t)(s.PutJob(ctx, job, client.Condition{}))
	carrier := webhookJob("shop", "carrier", r.URL, nil)
	carrier.ConcurrencyPolicy, carrier.CarryState = run.ConcurrencyQueue, true
	carrier.Objective = &dispatcher.Objective{Within: input.Duration(1e9), Of: "99.9%"}
	must[dispatcher.Job](t)(s.PutJob(ctx, carrier, client.Condition{}))
	s.run = must[run.Run](t)(s.RunJob(ctx, "shop", "orders")).ID
	until(t, "the run to fail", func() bool { return hasEnded(must[run.Run](t)(s.Run(ctx, s.run))) })
	at := time.Date(2020, 1, 1, 0, 0, 1, 0, time.UTC)
	begun := must[repeat.Backfill](t)(s.CreateBackfill(ctx, "shop", "orders", repeat.BackfillSpec{From: at, To: at,
		Concurrency: 1, Order: repeat.BackfillOldestFirst, Existing: repeat.ExistingSkip, Reason: hostile}))
	s.filled = begun.ID
	until(t, "the backfill to end", func() bool {
		return must[repeat.Backfill](t)(s.Backfill(ctx, "shop", s.filled)).State.Ended()
	})
	s.bulk = must[repeat.BulkAction](t)(s.CreateBulkAction(ctx, "shop", repeat.BulkRequest{BulkSpec: repeat.BulkSpec{
		Action: repeat.BulkPauseJobs, Filter: repeat.BulkFilter{Name: "none"}, Reason: hostile}})).ID
	until(t, "the bulk action to end", func() bool {
		return must[repeat.BulkAction](t)(s.BulkAction(ctx, "shop", s.bulk)).State.Ended()
	})
	must[access.App](t)(s.SetBounds(ctx, "suspended", func(b *target.Bounds) { b.Suspended = true }))
	others := map[string][]access.Scope{"spare": {access.ScopeRead}, "other": {access.ScopeRead}}
	maps.Copy(others, roles())
	for name, scopes := range others {
		token := access.APIToken{Name: name, TokenSpec: access.TokenSpec{Description: hostile, Scopes: scopes}}
		s.tokens[name] = must[access.IssuedToken](t)(s.PutToken(ctx, token, client.Condition{Absent: true})).Secret
	}
	return s
}

// addAlert adds an alert that never fires.
func (s *shop) addAlert(t *testing.T, url string) {
	t.Helper()
	var a alert.Alert
	a.SetDefaults()
	a.App, a.Name, a.Description, a.Jobs = "shop", "channel", hostile, []string{"none"}
	a.Failure = &alert.Failures{After: 2, RepeatEvery: 10}
	a.Missed, a.LateAfter, a.Objective = true, input.Duration(5*time.Minute), true
	a.Mutes = []alert.MuteWindow{
		{Schedule: "0 22 * * *", Duration: input.Duration(8 * time.Hour), Timezone: "Europe/Berlin"},
	}
	webhook := &target.AlertWebhook{}
	webhook.SetDefaults()
	webhook.URL, webhook.Format = url, target.AlertFormatSlack
	a.Destination.Webhook = webhook
	must[alert.Alert](t)(s.PutAlert(t.Context(), a, client.Condition{Absent: true}))
}

// as runs a command with the token of a role.
func (s *shop) as(role, input, command, args string) (stdout, stderr string, code int) {
	caller := *s.process
	caller.token = s.tokens[role]
	return caller.commandWith(input, append(strings.Fields(command), strings.Fields(args)...)...)
}

// Each command is refused without its scope and works with it. It prints no control characters, and
// its JSON matches openapi.json.
func TestEveryCommandByRights(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	s, rows := newShop(t), commandRows()
	document := readSchemas(t, s.get(t, "/openapi.json"))
	made := 0
	for _, leaf := range newParser(&cli{}, console{}, func(int) {}).Model.Leaves(true) {
		command := pathOf(leaf)
		row, known := rows[command]
		chosen := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "output" }) // else it is always JSON
		switch {
		case !known:
			t.Errorf("carillon %s has no row in commandRows", command)
			continue
		case row.local != "":
			continue
		}
		for _, role := range []string{"without", "reader", "writer", "admin"} {
			for _, form := range []string{outputTable, outputJSON, outputLines} {
				if form != outputTable && (row.schema == "" || !chosen || role == "without") {
					continue
				}
				made++
				args := s.fill(row.args, made)
				if form != outputTable {
					args += " -o " + form
				}
				want := exitRefused
				if role == "admin" || slices.Contains(roles()[role], row.needs) {
					want = row.code
				}
				out, errs, code := s.as(role, row.input, command, args)
				if code != want {
					t.Errorf("carillon %s %s as %s: exit %d, want %d: %s%s", command, args, role, code, want, out, errs)
				}
				if at := strings.IndexFunc(strings.ReplaceAll(out+errs, "\n", ""), input.UnsafeToShow); at >= 0 {
					t.Errorf("carillon %s %s as %s prints what a terminal obeys: %q", command, args, role, out+errs)
				}
				if !chosen {
					form = outputJSON
				}
				if code == want && row.schema != "" && want != exitRefused && want != exitConflict {
					document.check(t, "carillon "+command+" "+args, form, row.schema, out)
				}
			}
		}
		bare := append(strings.Fields(command), strings.Fields(s.fill(row.args, made))...)
		_, errs, code := carillon(t, []string{"HOME=" + t.TempDir(), "XDG_CONFIG_HOME="}, bare...)
		if code != exitUsage || !strings.Contains(errs, "--token (CARILLON_TOKEN)") {
			t.Errorf("carillon %s without a token: exit %d, %s", command, code, errs)
		}
	}
}

// fill replaces the placeholders in args.
func (s *shop) fill(args string, n int) string {
	return strings.NewReplacer("{run}", s.run, "{backfill}", s.filled, "{bulk}", s.bulk,
		"{at}", "2026-05-01T00:30:00Z", "{n}", fmt.Sprint(n)).Replace(args)
}

func TestEveryCommandHasAnExampleThatParses(t *testing.T) {
	t.Parallel()
	for _, leaf := range newParser(&cli{}, console{}, func(int) {}).Model.Leaves(true) {
		example := leaf.Tag.Get("example")
		words := shellWords(example)
		if len(words) == 0 || !strings.HasPrefix(example+" ", "carillon "+pathOf(leaf)+" ") {
			t.Errorf("carillon %s has the example %q, which does not begin with the command", pathOf(leaf), example)
			continue
		}
		parser := newParser(&cli{}, console{out: io.Discard, err: io.Discard}, func(int) {},
			kong.BindTo(t.Context(), (*context.Context)(nil)), kong.Bind(console{}))
		if _, err := parser.Parse(words[1:]); err != nil {
			t.Errorf("%s: %v", example, err)
		}
		if leaf.ClosestGroup() == nil {
			t.Errorf("carillon %s is in no group of the help", pathOf(leaf))
		}
	}
}

// pathOf returns the words of a command, without its other names.
func pathOf(command *kong.Node) string {
	return regexp.MustCompile(` \([a-z,]+\)`).ReplaceAllString(command.Path(), "")
}

// shellWords splits a command line with quotes around whole words.
func shellWords(line string) (words []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|([^\s'"]+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2]+m[3])
	}
	return words
}

func TestHelpShowsGroupsAndAnExample(t *testing.T) {
	t.Parallel()
	out, _, code := carillon(t, nil, "--help")
	for _, group := range groups()[:5] {
		if !strings.Contains(out, "\n"+group.Title+"\n") || code != 0 {
			t.Errorf("help: exit %d, without the heading %s:\n%s", code, group.Title, out)
		}
	}
	out, _, _ = carillon(t, nil, "run", "list", "--help")
	if !strings.Contains(out, "Example:\n  carillon run list --failed") {
		t.Errorf("the help of a command shows no example:\n%s", out)
	}
	if version, _, code := carillon(t, nil, "--version"); code != 0 || !strings.HasPrefix(version, "carillon ") {
		t.Errorf("--version: exit %d, %q", code, version)
	}
}
