package console_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestRollbackPageSaysWhatEachChoiceDoes(t *testing.T) {
	t.Parallel()
	found := dispatcher.Rollback{At: fixedAt, Reason: "restored", Effect: &dispatcher.RollbackEffect{
		LatestRunAt: &later,
		Apps:        []dispatcher.RollbackApp{{App: "billing", Triggers: 2, Fires: 40, Runs: 3}, {App: "shop", Triggers: 1, Fires: 2}},
	}}
	responses := map[string]any{"GET /v1/rollback": &found}
	w, _ := newCanned(t, responses)
	b := w.signedIn(everything())
	for at, wants := range map[string][]string{
		"rollback": {"recorded as skipped: 42. Live runs that end as lost: 3.", "misfires by the policy of their trigger: 42.", "by webhook-id",
			"recover-from-a-rollback.md", "Latest run in the restored database"},
		"rollback/skip": {"Live runs</dt><dd>3<", "Fires that are due</dt><dd>42<"},
	} {
		text := b.get(at).text
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("page %s does not show %q:\n%s", at, want, text)
			}
		}
	}
	found.Choice, found.Effect = dispatcher.RollbackSkip, nil
	text := b.get("rollback").text
	if strings.Contains(text, "until an operator chooses") || strings.Contains(text, "rollback/replay") ||
		!strings.Contains(text, "Skip was chosen") {
		t.Errorf("after the choice the page asks for it:\n%s", text)
	}
}
