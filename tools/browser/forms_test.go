package browser_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// fillIn gives each empty required field a value of its type, and returns a selector of the form.
const fillIn = `((action) => {
  const form = [...document.querySelectorAll('form[method=post]:has(button:not([type=button]))')]
    .find(f => new URL(f.getAttribute('action'), location).href === action)
  if (!form) return ''
  for (let up = form; up; up = up.parentElement) { if (up.tagName === 'DETAILS') up.open = true }
  for (const field of form.elements) {
    if (!field.required || field.value) continue
    if (field.tagName === 'SELECT') { field.selectedIndex = field.options.length - 1; continue }
    field.value = {number: field.min || '1', date: '2026-12-01', 'datetime-local': '2026-12-01T00:00'}[field.type] ||
      {expression: 'rate(1h)', cron: 'rate(1h)'}[field.name] || 'something'
  }
  form.dataset.chosen = 'yes'
  return 'form[data-chosen="yes"]'
})`

// lastForms are submitted last, because they end a session or stop the only node.
var lastForms = []string{"/rollback", "/nodes", "/tokens", "/logout", "/sessions"}

// last returns how late a form is submitted.
func last(action string) int {
	return slices.IndexFunc(lastForms, func(part string) bool { return strings.Contains(action, part) })
}

// passes reports whether the subject of a form can vanish: a run in flight ends, and a retry removes a dead letter.
func passes(action string) bool {
	return strings.Contains(action, "/cancel") || strings.Contains(action, "/dead-letters/")
}

// Every form does what its page promises, or explains the problem of the input: no form ends in an error of
// the node, or is shown to a person who may not submit it. All of them work without scripts, too.
func TestEveryFormGetsAResponse(t *testing.T) {
	for _, test := range []struct {
		name, person string
		scripts      bool
	}{
		{"operator", operator, true},
		{"bound to an app", bound, true},
		{"operator without scripts", operator, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, person := start(t), test.person
			n.fill(t, hostile)
			b := open(t, n.url)
			command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !test.scripts})
			console := n.url + "/console/"
			b.signIn(console, n.tokens[person])
			b.do("pause the refresh", chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("refresh", "paused")`)) // it replaces forms
			found := b.crawl(console, func(string) {})
			actions := make([]string, 0, len(found.forms))
			for action := range found.forms {
				actions = append(actions, action)
			}
			slices.SortFunc(actions, func(x, y string) int { return 2*(last(x)-last(y)) + strings.Compare(x, y) })
			if len(actions) < 10 {
				t.Errorf("a crawl found %d kinds of forms, want 10 or more: %v", len(actions), actions)
			}
			for _, action := range actions {
				submitted := slices.ContainsFunc(found.forms[action], func(page string) bool {
					return b.answer(console, n.tokens[person], action, page)
				})
				if !submitted && !passes(action) {
					t.Errorf("no page has the form for %s any longer: %v", action, found.forms[action])
				}
			}
		})
	}
}

// answer submits a form of a kind on a page, and checks that the response is a page and not a
// refusal. It reports whether the page had such a form.
func (b *tab) answer(console, secret, action, page string) bool {
	b.t.Helper()
	b.visit(page)
	if strings.Contains(evaluate[string](b, "location.pathname"), "/login") { // an earlier form ended the session
		b.signIn(console, secret)
		b.visit(page)
	}
	for _, exact := range evaluate[[]string](b, forms) {
		if kind(exact) != action {
			continue
		}
		selector := evaluate[string](b, fillIn+`("`+exact+`")`)
		status := b.submit(selector)
		b.mu.Lock()
		b.faults = slices.DeleteFunc(b.faults, func(fault string) bool { // Chromium logs each status from 400 on
			return strings.Contains(fault, "Failed to load resource")
		})
		b.mu.Unlock()
		if status >= 500 || status == 401 || status == 403 || status == 404 || status == 405 {
			b.t.Errorf("%s on %s: status %d: %.200s", exact, page, status, evaluate[string](b, "document.body.innerText"))
		}
		b.faultless(exact)
		return true
	}
	return false
}
