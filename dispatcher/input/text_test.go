package input_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestLinksLeadToPages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    "",
		"https://wiki.example.com/a?b=c#what": "",
		"http://wiki:8080":                    "",
		"javascript:alert(1)":                 input.CodeURLScheme,
		"wiki.example.com/a":                  input.CodeURLScheme,
		"https:///a":                          input.CodeURLScheme,
		"https://me:secret@wiki.example.com/": input.CodeURLUserinfo,
		"https://wiki.example.com/a b":        input.CodeURLSyntax,
		"https://wiki.example.com/%zz":        input.CodeURLSyntax,
		"https://wiki.example.com/" + strings.Repeat("a", 1000): input.CodeURLTooLong,
	} {
		var problems input.Problems
		input.CheckLink(&problems, "/runbook_url", text)
		got := ""
		if len(problems) > 0 {
			got = problems[0].Code
		}
		if got != want {
			t.Errorf("%q: problems %v, want %q", text, problems, want)
		}
	}
}
