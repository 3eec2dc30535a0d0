package terraform_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// operations reads from the sources which operations of AWS the readers of secrets call.
func operations(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "dispatcher", "secretmanager", "aws_*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 {
				return true
			}
			method, _ := call.Fun.(*ast.SelectorExpr)
			operation, _ := call.Args[2].(*ast.BasicLit)
			if method != nil && method.Sel.Name == "call" && operation != nil {
				name, err := strconv.Unquote(operation.Value)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, name)
			}
			return true
		})
	}
	slices.Sort(found)
	return found
}

// Nodes may do what their code does, and no more: a new operation needs a right in modules/iam and a line here.
func TestNodesMayCallWhatReadsTheirSecrets(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	actions := map[string]string{
		"GetSecretValue": "secretsmanager:GetSecretValue", "GetParameter": "ssm:GetParameter", "Decrypt": "kms:Decrypt",
		// Of the person who runs carillon secret key --kms.
		"GenerateDataKeyWithoutPlaintext": "",
	}
	var want []string
	for _, operation := range operations(t) {
		action, ok := actions[operation]
		if !ok {
			t.Errorf("no right is known for %s", operation)
		}
		if action != "" {
			want = append(want, action)
		}
	}
	slices.Sort(want)
	eachClient(t, func(t *testing.T, c client) {
		for _, r := range c.state(t, "terraform/ecs", "everything").all("aws_iam_role_policy") {
			if r.Name != "task" {
				continue
			}
			var policy struct{ Statement []struct{ Action texts } }
			if err := json.Unmarshal([]byte(r.text("policy")), &policy); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, statement := range policy.Statement {
				for _, action := range statement.Action {
					service, _, _ := strings.Cut(action, ":")
					if slices.Contains([]string{"secretsmanager", "ssm", "kms"}, service) {
						got = append(got, action)
					}
				}
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("nodes may %q, and call %q", got, want)
			}
		}
	})
}
