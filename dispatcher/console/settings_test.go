package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestSettingsAreKept(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.browse()
	for _, tt := range []struct {
		form url.Values
		want []string
	}{
		{url.Values{"theme": {"dark"}}, []string{`data-theme="dark"`, `lang="en"`, `data-zone="utc"`}},
		{url.Values{"language": {"zh"}}, []string{`data-theme="dark"`, `lang="zh"`, "登录"}},
		{url.Values{"zone": {"trigger"}}, []string{`data-theme="dark"`, `data-zone="trigger"`}},
		{url.Values{"zone": {"browser"}}, []string{`data-zone="utc"`}}, // its zone is unknown
		{url.Values{"theme": {"<b>"}, "language": {"xx"}, "zone": {"moon"}}, []string{`data-theme="dark"`, `lang="zh"`}},
	} {
		if got := b.post("settings", tt.form); got.StatusCode != http.StatusSeeOther {
			t.Fatalf("settings %v: status %d", tt.form, got.StatusCode)
		}
		text := b.get("login").text
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("after %v the page lacks %q:\n%.400s", tt.form, want, text)
			}
		}
	}
	got := w.browse().send(http.MethodGet, "login", nil, map[string]string{"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"})
	if !strings.Contains(got.text, `lang="zh"`) {
		t.Errorf("a Chinese browser gets\n%.400s", got.text)
	}
}

func TestUnchangedPageIsNotSentAgain(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.signedIn(reads())
	first := b.get("apps")
	again := b.send(http.MethodGet, "apps", nil, map[string]string{"If-None-Match": first.Header.Get("ETag")})
	if again.StatusCode != http.StatusNotModified || again.text != "" {
		t.Errorf("an unchanged page: status %d, %d bytes", again.StatusCode, len(again.text))
	}
	b.post("settings", url.Values{"theme": {"dark"}})
	other := b.send(http.MethodGet, "apps", nil, map[string]string{"If-None-Match": first.Header.Get("ETag")})
	if other.StatusCode != http.StatusOK {
		t.Errorf("a changed page: status %d", other.StatusCode)
	}
}
