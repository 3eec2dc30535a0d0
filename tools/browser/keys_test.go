package browser_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// press presses keys one after the other, each with its text, which a script can keep from a field as in a browser.
func (b *tab) press(keys string) {
	b.t.Helper()
	for _, key := range keys {
		command(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyDown, Key: string(key), Text: string(key),
		})
		command(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: string(key)})
	}
}

// leads runs an action and waits for the page that it opens.
func (b *tab) leads(what string, act chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b, patience)
	defer end()
	if _, err := chromedp.RunResponse(ctx, act); err != nil {
		b.t.Fatalf("%s on %s: %v", what, evaluate[string](b, "location.href"), err)
	}
}

// Every row and every page of the menu can be opened without a mouse.
func TestKeysLeadThroughTheConsole(t *testing.T) {
	n := start(t)
	n.fill(t, hostile)
	b := open(t, n.url)
	console := n.url + "/console/"
	b.signIn(console, n.tokens[operator])
	b.visit(console + "jobs")
	row := func() string { return evaluate[string](b, `document.activeElement.closest('tr')?.dataset.key ?? ''`) }
	rows := evaluate[[]string](b, `[...document.querySelectorAll('main tr[data-key]')].map(tr => tr.dataset.key)`)
	last := len(rows) - 1
	for _, step := range []struct{ keys, at string }{
		{"j", rows[0]}, {"j", rows[1]}, {"jj", rows[3]}, {"k", rows[2]}, {"kkkkk", rows[0]},
		{strings.Repeat("j", len(rows)+2), rows[last]}, {strings.Repeat("k", last), rows[0]},
	} {
		if b.press(step.keys); row() != step.at {
			t.Errorf("after %s the row is %q, want %q", step.keys, row(), step.at)
		}
	}
	b.press("/")
	if !evaluate[bool](b, `document.activeElement.matches('[data-search]')`) {
		t.Error("/ does not lead to the search")
	}
	b.press("j?gr") // letters in a field
	if got := evaluate[string](b, `document.activeElement.value`); got != "j?gr" {
		t.Errorf("the search has %q after j, ?, g and r, want these letters", got)
	}
	b.visit(console + "jobs")
	b.press("?")
	if !evaluate[bool](b, `document.querySelector('#help').open`) {
		t.Error("? does not show the keys")
	}
	if b.press("jr"); row() != "" || !strings.HasPrefix(b.says(), "Refreshes") {
		t.Errorf("keys pass the help: the row is %q, and the page says %q", row(), b.says())
	}
	b.do("close the help", chromedp.KeyEvent("\u001b"))
	if evaluate[bool](b, `document.querySelector('#help').open`) {
		t.Error("Escape does not close the help")
	}
	if b.press("r"); !strings.HasPrefix(b.says(), "Paused") {
		t.Errorf("after r the page says %q, want that its refresh is paused", b.says())
	}
	b.visit(console)
	if !strings.HasPrefix(b.says(), "Paused") {
		t.Errorf("the next page says %q, want that its refresh is paused, too", b.says())
	}
	b.press("r")
	b.visit(console + "jobs")
	b.press("j")
	b.leads("press Enter", chromedp.KeyEvent("\r"))
	if at := evaluate[string](b, "location.pathname"); at != "/console/apps/"+strings.Replace(rows[0], "/", "/jobs/", 1) {
		t.Errorf("Enter on the row %s leads to %s", rows[0], at)
	}
	b.menuByKeys(console)
	b.faultless("keys")
}

// menuByKeys goes to each page of the menu by its letter.
func (b *tab) menuByKeys(console string) {
	b.t.Helper()
	items := evaluate[map[string]string](b, `Object.fromEntries([...document.querySelectorAll('[data-go]')]
		.map(a => [a.dataset.go, new URL(a.getAttribute('href'), location).href]))`)
	if len(items) < 5 {
		b.t.Errorf("the menu has %d pages with a key, want five or more: %v", len(items), items)
	}
	for letter, page := range items {
		b.visit(console + "statistics")
		b.leads("press g "+letter, chromedp.KeyEvent("g"+letter))
		if at := evaluate[string](b, "location.href"); at != page {
			b.t.Errorf("g and %s lead to %s, want %s", letter, at, page)
		}
	}
	b.visit(console)
	b.press("gx")
	if !evaluate[bool](b, `location.pathname.endsWith('/console/')`) {
		b.t.Error("g and a letter of no page leave the page")
	}
}

// choose changes a setting in the header, and waits for the page that shows it.
func (b *tab) choose(name, value string) {
	b.t.Helper()
	b.leads("choose "+name, chromedp.Evaluate[chromedp.Void](`(() => {
		const select = document.querySelector('.settings select[name=`+name+`]')
		select.value = '`+value+`'
		select.dispatchEvent(new Event('change', {bubbles: true}))
	})()`))
}

// The chosen zone changes how times look, with their offset, but not the instants.
func TestZoneSwitchShowsTheSameInstants(t *testing.T) {
	n := start(t)
	n.fill(t, hostile)
	b := open(t, n.url)
	command(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	console := n.url + "/console/"
	b.signIn(console, n.tokens[operator])
	at := console + "apps/shop/jobs/nightly/triggers/night/explain?at=2026-07-01T06:30:00Z"
	b.visit(at)
	for _, test := range []struct{ zone, want string }{
		{"utc", "2026-07-01 06:30:00 Z"}, {"trigger", "2026-07-01 02:30:00 -04:00"}, {"browser", "2026-07-01 12:00:00 +05:30"},
	} {
		b.choose("zone", test.zone)
		shown := evaluate[[]string](b, `[...document.querySelectorAll('main time[datetime^="2026-07-01T06:30:00"]')].map(time => time.innerText)`)
		if len(shown) == 0 || shown[0] != test.want {
			t.Errorf("with the zone %s the page shows %q, want %q", test.zone, shown, test.want)
		}
		if here := evaluate[string](b, "location.href"); here != at {
			t.Errorf("the choice of the zone leads to %s, want %s", here, at)
		}
	}
	// The zone of the browser changes, as on a journey.
	command(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Australia/Lord_Howe"})
	b.leads("travel", chromedp.Evaluate[chromedp.Void](`location.reload()`)) // it sends the zone and loads the page again
	b.do("wait for the times of the new zone", chromedp.Poll[chromedp.Void](`document.querySelector('main')?.innerText.includes('+10:30')`))
	b.faultless("zones")
}

// The chosen theme applies to every page, whatever the system prefers.
func TestThemeIsKept(t *testing.T) {
	n := start(t)
	b := open(t, n.url)
	console := n.url + "/console/"
	b.signIn(console, n.tokens[operator])
	colour := `getComputedStyle(document.body).color`
	colours := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: theme},
		}})
		b.visit(console)
		colours[theme] = evaluate[string](b, colour)
	}
	if colours["light"] == colours["dark"] || !regexp.MustCompile(`^rgb`).MatchString(colours["dark"]) {
		t.Errorf("the page follows no theme of the system: %v", colours)
	}
	for theme, want := range map[string]string{"light": colours["light"], "dark": colours["dark"], "auto": colours["dark"]} {
		b.choose("theme", theme) // while the system prefers dark
		b.visit(console + "jobs")
		if got := evaluate[string](b, colour); got != want {
			t.Errorf("with the theme %s the page is %s, want %s", theme, got, want)
		}
	}
	b.faultless("themes")
}
