package console

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// wordedTypes are the types of the domain whose values pages show by words, by their package and name, and the
// beginning of the keys of their words. A type of the domain's root has no package here.
func wordedTypes() map[string][]string {
	return map[string][]string{
		"run.State": {"state."}, "run.Kind": {"kind."}, "run.Class": {"class."}, "JobState": {"jobs.state."},
		"TriggerState": {"state."}, "NodeState": {"state."}, "NodeReason": {"attention.node."}, "MisfirePolicy": {"state."},
		"Decision": {"state."}, "run.ConcurrencyPolicy": {"concurrency_policy."}, "target.AlertCondition": {"condition."},
		"target.AlertTransition": {"transition."}, "alert.Kept": {"kept."}, "access.Scope": {"scope.", "scope_name."},
		"target.Kind": {"target."}, "run.FollowEvent": {"on."}, "target.GroupKind": {"group_kind."}, "target.EndpointState": {"state."},
		"target.EndpointSource": {"source."}, "repeat.BackfillState": {"state."}, "repeat.BackfillOrder": {"order."},
		"repeat.BackfillExisting": {"existing."}, "repeat.BulkVerb": {"bulk."}, "repeat.BulkState": {"state."},
		"target.Invocation": {"invocation."}, "view.CredentialReason": {"attention.credential."}, "RollbackChoice": {"rollback."},
		"Cause": {"action."}, "routing.Strategy": {"strategy."}, "verify.Verdict": {"state."}, "schedule.Dialect": {"dialect."},
		"schedule.Gap": {"gap."}, "schedule.Overlap": {"overlap."}, "schedule.Effect": {"preview.effect."},
	}
}

// valuesOf returns the constants of each type that the sources in a folder declare.
func valuesOf(t *testing.T, folder string) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			declared, is := node.(*ast.ValueSpec)
			if !is || len(declared.Values) == 0 {
				return true
			}
			literal, is := declared.Values[0].(*ast.BasicLit)
			if of, named := declared.Type.(*ast.Ident); named && is && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values[of.Name] = append(values[of.Name], value)
			}
			return true
		})
	}
	return values
}

// wantWords checks that every language has a word for each of the values.
func wantWords(t *testing.T, of, prefix string, values []string) {
	t.Helper()
	languages, err := kit.LoadTexts(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	for name, language := range languages {
		for _, value := range values {
			if key := kit.WordKey(prefix, value); !language.Has(key) {
				t.Errorf("texts/%s.json lacks %s: the word for %q, of %s", name, key, value, of)
			}
		}
	}
}

func TestValuesOfTheDomainHaveWords(t *testing.T) {
	t.Parallel()
	declared := map[string]map[string][]string{}
	for name, prefixes := range wordedTypes() {
		room, of, found := strings.Cut(name, ".")
		if !found {
			room, of = "", name
		}
		if declared[room] == nil {
			declared[room] = valuesOf(t, filepath.Join("..", room))
		}
		values := declared[room][of]
		if len(values) < 2 {
			t.Errorf("there are the values %q of %s, want two at least; was the type renamed?", values, name)
		}
		for _, prefix := range prefixes {
			wantWords(t, name, prefix, values)
		}
	}
	wantWords(t, "shapes", "strip.", kit.Shapes())
}

// The actions of the audit log in the sources of the store: as a field, a variable, or the first text of a call.
var (
	auditedField = regexp.MustCompile(`\b[aA]ction(?:: | :?= )"([a-z]+(?:[ _][a-z]+)*)"`)
	auditedCall  = regexp.MustCompile(
		`\b(?:[aA]udit[A-Za-z]*|callback|changeRun(?:In)?|changeMute|changeStates|[rR]emoveJob)\([^"{\n]*"([a-z]+(?:[ _][a-z]+)*)"`)
	auditedEither = regexp.MustCompile(`\baction := map\[bool\]string\{true: "([a-z]+)", false: "([a-z]+)"\}`)
)

// auditActions returns the possible actions of the audit log: those that the store writes, and those of refused
// requests, which have the last part of their path.
func auditActions(t *testing.T) []string {
	t.Helper()
	actions := []string{access.AuditMoreRefused, string(dispatcher.RollbackReplay), string(dispatcher.RollbackSkip)}
	files, err := filepath.Glob("../store/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []*regexp.Regexp{auditedField, auditedCall, auditedEither} {
			for _, found := range pattern.FindAllStringSubmatch(string(source), -1) {
				actions = append(actions, found[1:]...)
			}
		}
	}
	raw, err := os.ReadFile("../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(raw, &api); err != nil {
		t.Fatal(err)
	}
	for at, methods := range api.Paths {
		if strings.HasPrefix(at, "/xxl-job/") || at == "/v1/schedules/preview" {
			continue // the log has no refusals of executors, and a preview changes nothing
		}
		for method := range methods {
			switch method {
			case "post":
				actions = append(actions, path.Base(at))
			case "put", "patch", "delete":
				actions = append(actions, method)
			}
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

func TestActionsOfTheAuditLogHaveWords(t *testing.T) {
	t.Parallel()
	actions := auditActions(t)
	for _, known := range []string{
		"put", "enable", "set state", "delete after completion", "rolled_back", "acknowledge", "import", "heartbeat",
	} {
		if !slices.Contains(actions, known) {
			t.Errorf("the sources were searched for actions, and %q was not found among %q", known, actions)
		}
	}
	wantWords(t, "the audit log", "action.", actions)
}

func TestValuesAreShownWithTheirWords(t *testing.T) {
	t.Parallel()
	of := &kit.Texts{All: map[string]string{"class.timeout": "too <slow>", "action.set_state": "set", "action.put": "put"}}
	v := &visit{Reader: kit.Reader{Texts: of}}
	for _, tt := range []struct{ prefix, value, html, text string }{
		{"class.", "timeout", "too &lt;slow&gt; <code>timeout</code>", "too <slow> (timeout)"},
		{"action.", "set state", "set <code>set state</code>", "set (set state)"},
		{"action.", "put", "<code>put</code>", "put"},               // the word is the value
		{"class.", "new<b>", "<code>new&lt;b&gt;</code>", "new<b>"}, // a newer node has more values
		{"class.", "", string(kit.None), ""},
	} {
		if html := string(v.NamedHTML(tt.prefix, tt.value)); html != tt.html {
			t.Errorf("%s%s is shown as %s, want %s", tt.prefix, tt.value, html, tt.html)
		}
		if text := of.WordAndValue(tt.prefix, tt.value); text != tt.text {
			t.Errorf("%s%s is %s in words, want %s", tt.prefix, tt.value, text, tt.text)
		}
	}
}
