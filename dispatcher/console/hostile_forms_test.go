package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// sent is a form with the texts written into it.
type sent struct {
	method, at string
	values     url.Values
	written    []string // the names of the fields that a person fills in
}

// attribute returns an attribute of an element; empty if it has none.
func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// formsOf returns the forms of a page, with a text in every field.
func formsOf(t *testing.T, got page, text func(string) string) (forms []sent) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(got.text))
	if err != nil {
		t.Fatal(err)
	}
	for node := range doc.Descendants() {
		if node.Type != html.ElementNode || node.Data != "form" || attribute(node, "method") == "dialog" {
			continue
		}
		action, err := got.Request.URL.Parse(attribute(node, "action"))
		if err != nil {
			t.Fatal(err)
		}
		form := sent{method: strings.ToUpper(attribute(node, "method")), values: url.Values{},
			at: strings.TrimPrefix(action.EscapedPath(), "/console/")}
		for field := range node.Descendants() {
			name := attribute(field, "name")
			switch {
			case name == "" || field.Data == "button":
			case attribute(field, "type") == "hidden":
				form.values.Add(name, attribute(field, "value"))
			default:
				form.values.Set(name, text(name))
				form.written = append(form.written, name)
			}
		}
		forms = append(forms, form)
	}
	return forms
}

// answers returns the results of all forms of all pages with a text in every field, by page and action.
func answers(t *testing.T, text func(string) string) map[string]shown {
	t.Helper()
	all := map[string]shown{}
	operate := operateDone()
	operate["POST /v1/apps/billing/jobs/invoices/backfill"] = operate["GET /v1/apps/billing/backfills/b1"] // it counts, too
	for kind, responses := range map[string]map[string]any{"watch/": watchDone(), "operate/": operate} {
		w, _ := newCanned(t, responses)
		b := w.signedIn(everything())
		for name, at := range pagesAt() {
			if !strings.HasPrefix(name, kind) {
				continue
			}
			for _, form := range formsOf(t, b.get(at), text) {
				// What a search shows depends on the text; see TestSearchShowsAnyText.
				if form.at == "logout" || form.at == "settings" || form.at == "search" {
					continue
				}
				b.answered(t, name, form, text, all)
			}
		}
	}
	return all
}

// answered sends a form, follows its redirect, and notes the page.
func (b *browser) answered(t *testing.T, name string, form sent, text func(string) string, all map[string]shown) {
	t.Helper()
	var got page
	if form.method == http.MethodPost {
		got = b.post(form.at, form.values)
	} else {
		got = b.get(form.at + "?" + form.values.Encode())
	}
	if to := got.Header.Get("Location"); to != "" {
		at, err := got.Request.URL.Parse(to)
		if err != nil || !strings.HasPrefix(at.Path, "/console/") {
			t.Errorf("%s %s leads to %q, which is not of the console: %v", form.method, form.at, to, err)
			return
		}
		got = b.get(strings.TrimPrefix(at.RequestURI(), "/console/"))
	}
	if got.StatusCode >= http.StatusInternalServerError || strings.Contains(got.text, "ZgotmplZ") {
		t.Errorf("%s %s of %s: status %d\n%s", form.method, form.at, name, got.StatusCode, b.w.logs)
	}
	page := read(t, got.text)
	page.at = strings.TrimPrefix(got.Request.URL.Path, "/console/")
	all[name+" "+form.method+" "+form.at] = page
	for _, field := range form.written {
		if shown := page.has(input.ShownText(text(field), "\n\t\r")); form.method == http.MethodGet && !shown && !chosen[field] {
			t.Errorf("%s ?%s= comes back without what was written into it", form.at, field)
		}
	}
}

// chosen are the fields of filters with choices; any other text is not chosen.
var chosen = map[string]bool{
	"state": true, "result": true, "class": true, "refused": true, "order": true, "existing": true, "action": true, "decision": true,
	"dialect": true, "gap": true, "overlap": true, "app": true, "days": true, "kind": true, "run": true,
}

// Texts in a form come back unchanged, if the form is shown again, and run nothing. They need not be UTF-8.
func TestHostileFormsRunNothing(t *testing.T) {
	t.Parallel()
	want := answers(t, harmless)
	texts := map[string]func(string) string{
		"bytes": func(field string) string { return "\xff\xfe\xc0\xbc" + field + "<script>alert(1)</script>\xf0\x9f" },
	}
	for name, text := range hostileTexts {
		texts[name] = text
	}
	delete(texts, "long") // it is too long for an address
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at, got := range answers(t, text) {
				if diff := cmp.Diff(want[at].elements, got.elements); diff != "" {
					t.Errorf("%s has other elements than with a harmless text (-harmless +hostile):\n%s", at, diff)
				}
				if links := got.foreign(); len(links) > 0 {
					t.Errorf("%s has links that leave the console: %q", at, links)
				}
			}
		})
	}
}
