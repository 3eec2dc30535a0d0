package console

import (
	"net/url"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// settingsLife is how long a browser keeps what a person has chosen.
const settingsLife = 365 * 24 * time.Hour

// themes are the appearances of the pages.
func themes() []string { return []string{"auto", "light", "dark"} }

// readSettings reads what the person has chosen; what is not valid has its default.
func (v *visit) readSettings() {
	chosen, _ := url.ParseQuery(v.cookie(settingsCookie))
	var browser string
	if told, err := v.Cookie(zoneCookie); err == nil { // by a script, under the same name everywhere
		browser, _ = url.QueryUnescape(told.Value)
	}
	v.Zone = kit.ReadZone(chosen.Get("zone"), browser)
	v.Texts = v.console.languages.Of(chosen.Get("language"), v.Header.Get("Accept-Language"))
	if v.theme = chosen.Get("theme"); !slices.Contains(themes(), v.theme) {
		v.theme = "auto"
	}
}

// settings keeps what a person chooses, and shows the page again.
func (c *Console) settings(v *visit) {
	if !v.readForm() {
		return
	}
	chosen := url.Values{"zone": {string(v.Zone.Choice)}, "theme": {v.theme}}
	if old, err := url.ParseQuery(v.cookie(settingsCookie)); err == nil && c.languages[old.Get("language")] != nil {
		chosen.Set("language", old.Get("language"))
	}
	if zone := kit.ZoneChoice(v.PostForm.Get("zone")); slices.Contains(kit.ZoneChoices(), zone) {
		chosen.Set("zone", string(zone))
	}
	if theme := v.PostForm.Get("theme"); slices.Contains(themes(), theme) {
		chosen.Set("theme", theme)
	}
	if language := v.PostForm.Get("language"); c.languages[language] != nil {
		chosen.Set("language", language)
	}
	v.setCookie(settingsCookie, chosen.Encode(), settingsLife)
	next := v.PostForm.Get("next")
	if next == "login" {
		v.redirect(v.link("login"))
		return
	}
	v.redirect(v.next(next))
}
