package provider_test

import (
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// A story: all problems of three resources are reported at once. Each error explains the problem,
// points to its line, and names the value, the rule and the fix.
func TestStoryWrongInputsAreReportedAtTheirLines(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	eachClient(t, func(t *testing.T, client clientProgram) {
		const dir = "testdata/wrong_inputs/"
		d := (&fixture{client: client}).directory(t, contents(t, dir+"main.tf"), providerBlock(""))
		golden(t, dir+"says.txt", d.mustFail(t, []string{"validate"}))
	})
}
