package browser_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// axe returns the source of axe-core.
func axe(t *testing.T) string {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), filepath.Join("..", "axe.sh")).Output()
	if err != nil {
		missing(t, fmt.Sprint("tools/axe.sh cannot fetch axe-core: ", err))
	}
	source, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// judge runs axe on the page, and returns one line for each broken rule.
const judge = `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then(r =>
  r.violations.map(v => v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 3).map(n => n.target.join(' ')).join(', ')))`

// appearances are the settings in which each page is checked.
var appearances = []struct {
	name, theme string
	width       int64
	forced      string
}{
	{"light and wide", "light", 1280, "none"}, {"dark and wide", "dark", 1280, "none"},
	{"light and narrow", "light", 320, "none"}, {"dark and narrow", "dark", 320, "none"},
	{"forced colors", "light", 1280, "active"},
}

// Every page meets level AA of WCAG 2.2 as far as axe can check it, and no page scrolls sideways.
func TestPagesAreAccessible(t *testing.T) {
	source := axe(t)
	n := start(t)
	n.fill(t, hostile)
	b := open(t, n.url)
	console := n.url + "/console/"
	b.judged(source, console+"login")
	b.signIn(console, n.tokens[operator])
	seen := map[string]bool{}
	b.crawl(console, func(address string) {
		if seen[kind(address)] {
			return
		}
		seen[kind(address)] = true
		b.judged(source, address)
	})
}

// judged runs axe on a page in every appearance.
func (b *tab) judged(source, address string) {
	b.t.Helper()
	b.visit(address)
	for _, as := range appearances {
		window := emulation.SetDeviceMetricsOverrideParams{Width: as.width, Height: 900, DeviceScaleFactor: 1}
		command(b, emulation.SetDeviceMetricsOverride, window)
		command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: as.theme}, {Name: "forced-colors", Value: as.forced},
			{Name: "prefers-reduced-motion", Value: "reduce"}, // axe cannot judge a colour in transition
		}})
		evaluate[chromedp.Void](b, source)
		for _, rule := range evaluate[[]string](b, judge) {
			b.t.Errorf("%s, %s: %s", address, as.name, rule)
		}
		if wide := evaluate[int64](b, "document.documentElement.scrollWidth"); wide > as.width {
			b.t.Errorf("%s, %s: the page is %d px wide in a window of %d", address, as.name, wide, as.width)
		}
	}
	command(b, emulation.ClearDeviceMetricsOverride, cdp.Empty{})
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	b.faultless(fmt.Sprint(address, " with axe"))
}
