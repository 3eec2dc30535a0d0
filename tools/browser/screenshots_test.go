//go:build screenshots

package browser_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// "make screenshots" takes the pictures of the docs from nodes that a chaos run has just frozen and cut off.
func TestScreenshotsOfTheDocs(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "images")
	f := newFront(t, os.Getenv("CHAOS_URL")) // a browser trusts localhost without https
	b := open(t, f.url)
	console := f.url + "/console/"
	b.signIn(console, os.Getenv("CHAOS_TOKEN"))
	command(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 800, DeviceScaleFactor: 1})
	b.visit(console + "apps/noisy/runs?job=unavailable-0&state=failed")
	run := evaluate[string](b, `new URL(document.querySelector('main tbody a[href*="runs/"]').getAttribute('href'), location).href`)
	now := time.Now().UTC()
	minutes := url.Values{"app": {"noisy"}, "from": {now.Add(-90 * time.Second).Format(time.RFC3339)},
		"to": {now.Add(30 * time.Second).Format(time.RFC3339)}}
	for name, address := range map[string]string{
		"attention": console, "jobs": console + "jobs", "job": console + "apps/noisy/jobs/unavailable-0", "run": run,
		"timeline": console + "timeline?" + minutes.Encode(),
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
