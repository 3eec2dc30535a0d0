package console_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// hostileTexts are texts of an attacker in a field, each with the name of the field in it.
var hostileTexts = map[string]func(field string) string{
	"markup": func(field string) string {
		return `</textarea></title></svg><script>alert("` + field + `")</script><!--`
	},
	"attribute": func(field string) string { return `" onfocus='alert(1)' autofocus x="` + field + "`'>" },
	"script":    func(field string) string { return `javascript:alert('` + field + `')//%0aalert(1)` },
	"address":   func(field string) string { return `//evil.example/` + field + `?a=b&amp;c#d` },
	"path":      func(field string) string { return `../../` + field + `/./..\%2e%2e` },
	"template":  func(field string) string { return `{{.` + field + `}}{{template "x"}}${1+1}{n}<%= 1 %>` },
	"controls": func(field string) string {
		return "\u202e\u2066" + field + "\u2069\ufeff\u0001\u001b[31m\u007f\u0085\t\nend"
	},
	"long": func(field string) string { return field + strings.Repeat("W", 4<<10) },
}

// harmless is a text that no page can take for anything else.
func harmless(field string) string { return "the " + strings.ReplaceAll(field, ".", " ") }

// shown is a page's content of texts.
type shown struct {
	// elements are their names, each with the names of its attributes.
	elements []string
	// at is its address below the console.
	at string
	// texts are the readable texts, and links the links.
	texts, links []string
}

// read parses a page.
func read(t *testing.T, page string) (s shown) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for node := range doc.Descendants() {
		switch node.Type {
		case html.TextNode:
			s.texts = append(s.texts, node.Data)
		case html.CommentNode:
			s.elements = append(s.elements, "a comment")
		case html.ElementNode:
			name := node.Data
			for _, a := range node.Attr {
				name += " " + a.Key
				if slices.Contains([]string{"href", "src", "action", "formaction"}, a.Key) {
					s.links = append(s.links, a.Val)
				} else {
					s.texts = append(s.texts, a.Val)
				}
			}
			s.elements = append(s.elements, name)
		}
	}
	return s
}

// has reports whether a text is readable.
func (s shown) has(text string) bool {
	return slices.ContainsFunc(s.texts, func(one string) bool { return strings.Contains(one, text) })
}

// foreign returns the links that leave the console from a page of it.
func (s shown) foreign() []string {
	const docs = "https://github.com/carillon-dev/carillon/blob/main/docs/"
	here := &url.URL{Scheme: "https", Host: "node.example", Path: "/console/" + s.at}
	return slices.DeleteFunc(slices.Clone(s.links), func(link string) bool {
		if strings.HasPrefix(link, docs) {
			return true
		}
		to, err := here.Parse(link)
		return err == nil && to.Scheme == here.Scheme && to.Host == here.Host && strings.HasPrefix(to.EscapedPath(), "/console/")
	})
}

// textsOf returns all texts of a value, such as a job.
func textsOf(v reflect.Value) (all []string) {
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return textsOf(v.Elem())
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return []string{string(v.Bytes())}
		}
		for i := range v.Len() {
			all = append(all, textsOf(v.Index(i))...)
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			all = append(append(all, textsOf(key)...), textsOf(value)...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all = append(all, textsOf(v.Field(i))...)
			}
		}
	default:
	}
	return all
}

// pagesWith returns all pages of an API that responds with a text in every field, and the expected text by field.
func pagesWith(t *testing.T, text func(string) string) (pages map[string]shown, fields map[string]string) {
	t.Helper()
	pages, fields = map[string]shown{}, map[string]string{}
	at := pagesAt()
	at["watch/job_strips"] = "apps/billing/jobs/invoices"
	for kind, responses := range map[string]map[string]any{"watch/": watched(1), "operate/": operated(1)} {
		given, of := filled(t, responses, text)
		maps.Copy(fields, of)
		if strip, is := given["GET /v1/apps/billing/jobs/invoices/triggers/nightly/strip"].(view.Strip); is {
			strip.Trigger = text("JobSpec.Triggers[]")
			given["GET /v1/apps/billing/jobs/invoices/triggers/"+strip.Trigger+"/strip"] = strip
		}
		w := newTrial(t, func(o *console.Options) {
			o.API = &canned{API: o.API, responses: given}
			o.Definition = func(job dispatcher.Job) (string, error) {
				return strings.Join(textsOf(reflect.ValueOf(job)), "\n"), nil
			}
		})
		b := w.signedIn(everything())
		for name, at := range at {
			if !strings.HasPrefix(name, kind) {
				continue
			}
			got := b.get(at)
			if got.StatusCode != http.StatusOK || strings.Contains(got.text, "ZgotmplZ") {
				t.Errorf("%s: status %d, or a value that its template does not expect:\n%s\n%s", name, got.StatusCode, got.text, w.logs)
			}
			page := read(t, got.text)
			page.at, _, _ = strings.Cut(at, "?")
			pages[name] = page
		}
	}
	return pages, fields
}

// hidesSomething reports whether a text holds a character that browsers act on instead of showing it.
func hidesSomething(text string) bool {
	return strings.ContainsFunc(strings.Join(strings.Fields(text), ""), input.UnsafeToShow)
}

// Pages show any text in a field of the API unchanged: no text becomes an element, an attribute or an address.
func TestHostileTextsAreShownAndRunNothing(t *testing.T) {
	t.Parallel()
	want, _ := pagesWith(t, harmless)
	for name, text := range hostileTexts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pages, fields := pagesWith(t, text)
			for page, got := range pages {
				if diff := cmp.Diff(want[page].elements, got.elements); diff != "" {
					t.Errorf("%s has other elements than with a harmless text (-harmless +hostile):\n%s", page, diff)
				}
				if links := got.foreign(); len(links) > 0 {
					t.Errorf("%s has links that leave the console: %q", page, links)
				}
				if at := slices.IndexFunc(got.texts, hidesSomething); at >= 0 {
					t.Errorf("%s shows %q, which hides or reverses a part", page, got.texts[at])
				}
			}
			for field, text := range fields {
				seen := false
				for _, page := range pages {
					seen = seen || page.has(input.ShownText(text, "\n\t\r"))
				}
				if seen == notShown[field] {
					t.Errorf("%s is shown: %t, is in notShown: %t: show it, or list it there", field, seen, notShown[field])
				}
			}
		})
	}
}
