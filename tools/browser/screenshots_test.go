//go:build screenshots

package browser_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// "make screenshots" takes the pictures of the docs. The data is that of the other tests: jobs that succeed, that fail and that
// are paused.
func TestScreenshotsOfTheDocs(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "images")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	n := start(t)
	n.fill(t, "Month end at the till")
	b := open(t, n.url)
	console := n.url + "/console/"
	b.signIn(console, n.tokens[operator])
	command(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 800, DeviceScaleFactor: 1})
	b.visit(console + "apps/shop/runs?job=bad")
	run := evaluate[string](b, `new URL(document.querySelector('main a.run, main a[href*="runs/"]').getAttribute('href'), location).href`)
	for name, address := range map[string]string{
		"attention": console, "jobs": console + "jobs", "job": console + "apps/shop/jobs/good", "run": run,
		"timeline": console + "timeline?app=shop",
	} {
		b.visit(address)
		picture, err := chromedp.Run(b, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
