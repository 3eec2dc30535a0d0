package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestPageShowsOnlyObjectsOfTheToken(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	for _, app := range []string{"billing", "shop"} {
		if _, _, err := w.store.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, input.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	got := w.signedIn(reads(), "billing").get("apps")
	if got.StatusCode != http.StatusOK || !strings.Contains(got.text, ">billing</a>") || strings.Contains(got.text, "shop") {
		t.Errorf("the page of a token of one app has status %d and is\n%s", got.StatusCode, got.text)
	}
}
