package api

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// openAPI is the part of openapi.json that the tests check.
type openAPI struct {
	Comp struct {
		Parameters, Responses, Headers map[string]json.RawMessage
		Schemas                        map[string]struct{ Enum []string }
	} `json:"components"`
}

func readOpenAPI(t *testing.T) (doc openAPI) {
	t.Helper()
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOpenAPIReferencesExist(t *testing.T) {
	t.Parallel()
	var doc any
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(doc)
	all := readOpenAPI(t).Comp
	there := map[string]bool{}
	for _, section := range []struct {
		name string
		keys []string
	}{
		{"parameters", slices.Collect(maps.Keys(all.Parameters))}, {"responses", slices.Collect(maps.Keys(all.Responses))},
		{"headers", slices.Collect(maps.Keys(all.Headers))}, {"schemas", slices.Collect(maps.Keys(all.Schemas))},
	} {
		for _, key := range section.keys {
			there["#/components/"+section.name+"/"+key] = true
		}
	}
	if diff := cmp.Diff(there, used); diff != "" {
		t.Errorf("components (-there +referred to):\n%s", diff)
	}
}

func TestListsHaveEachConstant(t *testing.T) {
	t.Parallel()
	schemas := readOpenAPI(t).Comp.Schemas
	var states []string
	for _, s := range run.States {
		states = append(states, string(s))
	}
	if diff := cmp.Diff(states, schemas["RunState"].Enum); diff != "" {
		t.Errorf("run states (-domain +described):\n%s", diff)
	}
	var strategies []string
	for _, s := range target.Strategies {
		strategies = append(strategies, string(s))
	}
	if diff := cmp.Diff(strategies, schemas["Strategy"].Enum); diff != "" {
		t.Errorf("strategies (-domain +described):\n%s", diff)
	}
	var conditions []string
	for _, c := range target.AlertConditions {
		conditions = append(conditions, string(c))
	}
	if diff := cmp.Diff(conditions, schemas["AlertCondition"].Enum); diff != "" {
		t.Errorf("conditions of alerts (-domain +described):\n%s", diff)
	}
	codes := append(constants(t, "../input/problem.go", "Code"), constants(t, "../input/problem.go", "Warn")...)
	slices.Sort(codes)
	var rows []string
	for _, row := range input.Codes {
		rows = append(rows, row.Code)
	}
	if diff := cmp.Diff(codes, rows); diff != "" {
		t.Errorf("codes (-constants +rows):\n%s", diff)
	}
	if diff := cmp.Diff(rows, slices.Sorted(slices.Values(schemas["Code"].Enum))); diff != "" {
		t.Errorf("codes (-rows +described):\n%s", diff)
	}
}

func TestCodesOfWarningsAreListed(t *testing.T) {
	t.Parallel()
	listed := slices.Sorted(slices.Values(schedule.WarningCodes))
	if diff := cmp.Diff(slices.Sorted(slices.Values(constants(t, "../input/problem.go", "Warn"))), listed); diff != "" {
		t.Errorf("codes of warnings (-constants +listed):\n%s", diff)
	}
}

func TestEachStatusOfACodeHasItsPlace(t *testing.T) {
	t.Parallel()
	for _, row := range input.Codes {
		invalid, warning := row.Status == http.StatusUnprocessableEntity, row.Status == 0
		if !invalid && !warning && !slices.Contains(precedence, row.Status) {
			t.Errorf("%s has status %d, which no place among the statuses decides about", row.Code, row.Status)
		}
		if warning != slices.Contains(schedule.WarningCodes, row.Code) {
			t.Errorf("%s has status %d; warnings have 0, problems have one", row.Code, row.Status)
		}
	}
}

// constants returns the values of the string constants of a file whose names begin with prefix.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if strings.HasPrefix(name.Name, prefix) && i < len(spec.Values) {
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
					value, _ := strconv.Unquote(literal.Value)
					values = append(values, value)
				}
			}
		}
		return true
	})
	slices.Sort(values)
	return values
}
