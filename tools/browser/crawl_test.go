package browser_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// mostOfAKind bounds how many pages of one kind a crawl opens; a thousand runs have a page each.
	mostOfAKind = 3
	mostPages   = 400
)

// names are the parts of a path that differ between pages of one kind.
var names = regexp.MustCompile(
	`/(apps|jobs|triggers|runs|groups|calendars|backfills|alerts|bulk|nodes|tokens|endpoints|pauses|dead-letters)/[^/?]+`)

// kind returns the part that pages of one kind share: their path without names, and the names of their parameters.
func kind(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	var parameters []string
	for name, values := range u.Query() {
		if values[0] != "" {
			parameters = append(parameters, name)
		}
	}
	slices.Sort(parameters)
	return names.ReplaceAllString(u.Path, "/$1/*") + "?" + strings.Join(parameters, "&")
}

// site is the result of a crawl.
type site struct {
	pages []string            // in the order of opening, few of a kind
	forms map[string][]string // pages with a form, by the kind of the address that the form writes to
}

// links are the addresses on a page, and forms the targets of its forms that have a button.
const (
	links = `[...document.querySelectorAll('a[href]')].map(a => new URL(a.getAttribute('href'), location).href.split('#')[0])`
	forms = `[...document.querySelectorAll('form[method=post]:has(button:not([type=button]))')]
    .map(f => new URL(f.getAttribute('action'), location).href)`
)

// crawl follows all links from a page on, and calls see for each page.
func (b *tab) crawl(console string, see func(address string)) site {
	b.t.Helper()
	found := site{forms: map[string][]string{}}
	kinds, known, waiting := map[string]int{}, map[string]bool{console: true}, []string{console}
	for len(waiting) > 0 && len(found.pages) < mostPages {
		address := waiting[0]
		waiting = waiting[1:]
		if kinds[kind(address)] == mostOfAKind {
			continue
		}
		kinds[kind(address)]++
		if status := b.visit(address); status >= 400 {
			b.t.Errorf("%s has status %d", address, status)
		}
		b.faultless(address)
		found.pages = append(found.pages, address)
		see(address)
		for _, action := range evaluate[[]string](b, forms) {
			found.forms[kind(action)] = append(found.forms[kind(action)], address)
		}
		for _, link := range evaluate[[]string](b, links) {
			if !known[link] && strings.HasPrefix(link, b.origin) {
				known[link] = true
				waiting = append(waiting, link)
			}
		}
	}
	return found
}

// Every person reaches every linked page, without an error, a violation of the content security
// policy, or a request to another host. A person with read access only sees no form that writes.
func TestEveryLinkLeadsToAPage(t *testing.T) {
	n := start(t)
	n.fill(t, hostile)
	for person := range people {
		t.Run(person, func(t *testing.T) {
			b := open(t, n.url)
			b.signIn(n.url+"/console/", n.tokens[person])
			found := b.crawl(n.url+"/console/", func(string) {})
			if len(found.pages) < 20 {
				t.Errorf("a crawl found %d pages, want 20 or more: %v", len(found.pages), found.pages)
			}
			if person != reader {
				return
			}
			for action, pages := range found.forms {
				if !harmless(action) {
					t.Errorf("a reader gets a form that writes to %s, on %s", action, pages[0])
				}
			}
		})
	}
}

// harmless reports whether a form only changes how the person who submits it sees the console.
func harmless(action string) bool {
	return strings.Contains(action, "/logout") || strings.Contains(action, "/settings")
}
