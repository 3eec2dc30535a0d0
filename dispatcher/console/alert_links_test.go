package console_test

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// alertLinks reads the links of the alert rules, as Prometheus fills them in for the app billing.
func alertLinks(t *testing.T) map[string]string {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join("..", "..", "examples", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{}
	rule := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?\n +console: ["'](.*?)["']\n`)
	branch := regexp.MustCompile(`(?s)\{\{ (?:if|with) .*?\}\}(.*?)(?:\{\{ else \}\}.*?)?\{\{ end \}\}`)
	value := strings.NewReplacer("{{ $externalLabels.carillon_console }}/console/", "", "{{ $labels.app }}", "billing",
		"{{ $labels.group }}", "fleet", `{{ . | first | label "app" }}`, "billing")
	for _, found := range rule.FindAllStringSubmatch(regexp.MustCompile(`\n {12}`).ReplaceAllString(string(rules), " "), -1) {
		link := value.Replace(found[2])
		links[found[1]] = branch.ReplaceAllString(link, "$1")
	}
	if len(links) < 25 {
		t.Fatalf("found only %v", links)
	}
	return links
}

// A link of an alert opens an existing page, the page shows the filter in it as chosen, and its section appears when it
// has entries.
func TestLinksOfAlertsOpenTheirObjects(t *testing.T) {
	t.Parallel()
	responses := operateDone()
	maps.Copy(responses, watchDone())
	w, _ := newCanned(t, responses)
	b := w.signedIn(everything())
	for alert, link := range alertLinks(t) {
		at, err := url.Parse(link)
		if err != nil || strings.Contains(link, "{{") {
			t.Errorf("%s: the link %s: %v", alert, link, err)
			continue
		}
		got := b.get(strings.TrimSuffix(link, "#"+at.Fragment))
		if got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: status %d\n%s", alert, link, got.StatusCode, got.text)
		}
		if at.Fragment != "" && !strings.Contains(got.text, `<section id="`+at.Fragment+`"`) {
			t.Errorf("%s: %s: the page has no section %s", alert, link, at.Fragment)
		}
		for name, values := range at.Query() {
			chosen := `<option value="` + values[0] + `" selected>`
			if name == "app" {
				chosen = " · " + values[0] + "</h1>"
			}
			if !strings.Contains(got.text, chosen) {
				t.Errorf("%s: %s: the page does not show %s=%s as its filter", alert, link, name, values[0])
			}
		}
	}
}
