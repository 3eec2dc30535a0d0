package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// visitWith returns a visit of a page with some cookies.
func visitWith(t *testing.T, at string, cookies map[string]string) *visit {
	t.Helper()
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, at, nil)
	for name, value := range cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	return c.visit(httptest.NewRecorder(), r)
}

func TestTimesHaveTheChosenZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	for _, tt := range []struct{ choice, browser, trigger, want string }{
		{"utc", "America/New_York", "Europe/Berlin", "2026-03-29 01:30:00 Z"},
		{"trigger", "America/New_York", "Europe/Berlin", "2026-03-29 03:30:00 +02:00"},
		{"trigger", "America/New_York", "", "2026-03-29 01:30:00 Z"},
		{"trigger", "", "Nowhere/City", "2026-03-29 01:30:00 Z"},
		{"browser", "America/New_York", "Europe/Berlin", "2026-03-28 21:30:00 -04:00"},
		{"browser", "Asia/Kolkata", "", "2026-03-29 07:00:00 +05:30"},
		{"browser", "Australia/Lord_Howe", "", "2026-03-29 12:30:00 +11:00"},
		{"browser", "", "", "2026-03-29 01:30:00 Z"},
		{"browser", "../../etc/passwd", "", "2026-03-29 01:30:00 Z"},
		{"browser", "Local", "", "2026-03-29 01:30:00 Z"},
	} {
		v := visitWith(t, "/console/apps", map[string]string{
			"carillon-settings": url.Values{"zone": {tt.choice}}.Encode(), "carillon-zone": url.QueryEscape(tt.browser),
		})
		got := string(v.TimeHTML(at, tt.trigger))
		cut := strings.LastIndex(tt.want, " ")
		want := `<time datetime="2026-03-29T01:30:00.000Z">` + tt.want[:cut] + `<span class="offset"> ` + tt.want[cut+1:] + `</span></time>`
		if got != want {
			t.Errorf("%s, browser %q, trigger %q:\n%s, want\n%s", tt.choice, tt.browser, tt.trigger, got, want)
		}
	}
}

// The script sets its cookie without the prefix of the other cookies over TLS.
func TestZoneOfTheBrowserIsKnownOverTLS(t *testing.T) {
	t.Parallel()
	v := visitWith(t, "https://ops.test/console/apps", map[string]string{"carillon-zone": "Asia%2FKolkata"})
	if got := v.ZoneOptions("")[2].Shown; !v.secure() || got != "Asia/Kolkata +05:30" {
		t.Errorf("the zone of the browser is %q, want Asia/Kolkata +05:30", got)
	}
}

func TestZonesAreOfferedWithTheirOffsets(t *testing.T) {
	t.Parallel()
	v := visitWith(t, "/console/apps", map[string]string{"carillon-zone": "Asia%2FKolkata"})
	got := v.ZoneOptions("Asia/Shanghai")
	want := []kit.ZoneOption{
		{Choice: kit.ZoneUTC, Shown: "Z"}, {Choice: kit.ZoneTrigger, Shown: "Asia/Shanghai +08:00"},
		{Choice: kit.ZoneBrowser, Shown: "Asia/Kolkata +05:30"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got = visitWith(t, "/console/apps", nil).ZoneOptions(""); got[1].Shown != "" || got[2].Shown != "" {
		t.Errorf("zones that are not known are shown as %v", got)
	}
}

func TestLengthsOfTimeAreShort(t *testing.T) {
	t.Parallel()
	v := visitWith(t, "/console/apps", nil)
	for d, want := range map[time.Duration]string{
		0: "0 ms", 350 * time.Millisecond: "350 ms", 1240 * time.Millisecond: "1.2 s", 59 * time.Second: "59 s",
		61 * time.Second: "1 min 1 s",
		2 * time.Hour:    "2 h", 2*time.Hour + 3*time.Second: "2 h", 26 * time.Hour: "1 d 2 h", -5 * time.Second: "−5 s",
		59*time.Second + 990*time.Millisecond: "1 min",
	} {
		if got := v.Texts.Duration(d); got != want {
			t.Errorf("%s is shown as %q, want %q", d, got, want)
		}
	}
	if got := v.Texts.Duration((*time.Duration)(nil)); got != "–" {
		t.Errorf("no length is shown as %q", got)
	}
}

func TestLinksAreRelative(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"/console/": "./apps/a%2Fb/jobs", "/console/apps": "./apps/a%2Fb/jobs", "/console/apps/x/jobs/y": "../../../apps/a%2Fb/jobs",
	} {
		if got := visitWith(t, at, nil).link("apps", "a/b", "jobs"); got != want {
			t.Errorf("from %s the link is %q, want %q", at, got, want)
		}
	}
}

func TestTextsInPagesAreEscaped(t *testing.T) {
	t.Parallel()
	v := visitWith(t, "/console/apps", nil)
	hostile := `"><script>alert(1)</script>`
	for what, got := range map[string]string{
		"a badge": string(v.Badge(hostile)), "a run": string(v.runHTML(hostile)), "an icon": string(kit.Icon(hostile)),
	} {
		if strings.Contains(got, "<script>") || strings.Contains(got, `="">`) {
			t.Errorf("%s is %s", what, got)
		}
	}
}
