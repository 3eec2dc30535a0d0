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

// operations reads from the sources which operations of AWS the readers of secrets call: the second field of an awsRequest.
func operations(t *testing.T) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "dispatcher", "secretmanager", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			request, ok := n.(*ast.CompositeLit)
			if !ok || len(request.Elts) < 2 {
				return true
			}
			typ, _ := request.Type.(*ast.Ident)
			operation, _ := request.Elts[1].(*ast.BasicLit)
			if typ != nil && typ.Name == "awsRequest" && operation != nil {
				name, err := strconv.Unquote(operation.Value)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, name)
			}
			return true
		})
	}
	if !slices.Contains(found, "GetSecretValue") {
		t.Fatalf("the operations of AWS are not found in the sources of secretmanager; found %v", found)
	}
	slices.Sort(found)
	return found
}

// It runs with every change, because a change that moves those sources need not run the step of the policies.
func TestOperationsOfAWSAreFoundInTheSources(t *testing.T) {
	t.Parallel()
	operations(t)
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
