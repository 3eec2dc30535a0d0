package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/test/need"
)

// The page of a job with an unreachable target says so at the top, before anything that looks healthy.
func TestPageOfAFailingJobNamesTheCause(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	down := newReceiver(t, func(http.ResponseWriter, arrival) {})
	address := down.URL
	down.Close()
	n := startNode(t, database, newToken(t, database), quick()...)
	job := webhookJob("shop", "orders", address, map[string]string{"each": "0/1 * * * * ?"})
	job.Retry.SetDefaults()
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	v := visitConsole(t, n)
	host := strings.TrimPrefix(address, "http://")
	until(t, "runs to wait for the host", func() bool {
		found := must[view.Attention](t)(n.Attention(t.Context(), "shop")).Circuits.Items
		return len(found) == 1 && found[0].Runs > 1
	})
	page, lacks := "", ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the top of the page lacks %q:\n%s", lacks, page)
		}
	})
	until(t, "the top of the page to say what is wrong", func() bool { // while a probe is under way, none is next
		page = v.get("apps/shop/jobs/orders").text
		top, _, _ := strings.Cut(page, `data-key="triggers"`)
		for _, lacks = range []string{
			"What is wrong", "Host " + host, "its circuit is open", "The next probe is at", "It fails since the run of",
			`<code>connect_refused</code>`, "none in the latest",
		} {
			if !strings.Contains(top, lacks) {
				return false
			}
		}
		lacks = ""
		return true
	})
	if strings.Contains(page, "badge-good") {
		t.Error("something on the page of a job that never succeeded looks well")
	}
	if first := v.get("").text; !strings.Contains(first, "the latest with connect_refused") {
		t.Errorf("the first page does not say how the host failed:\n%s", first)
	}
}
