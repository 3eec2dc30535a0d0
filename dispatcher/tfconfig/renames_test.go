package tfconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

func TestCompareFollowsRenamedTriggers(t *testing.T) {
	t.Parallel()
	named := func(expressions map[string]string) tfconfig.Content {
		c := content(t)
		berlin := c.Jobs[0].Triggers["berlin"]
		c.Jobs[0].Triggers = map[string]dispatcher.Trigger{}
		for name, expression := range expressions {
			berlin.Expression = expression
			c.Jobs[0].Triggers[name] = berlin
		}
		return c
	}
	for name, tt := range map[string]struct {
		server, files map[string]string // expressions
		from          map[string]string
		want          []string
	}{
		"only a name": {server: map[string]string{"old": "0 0 1 * * ?"}, files: map[string]string{"new": "0 0 1 * * ?"},
			from: map[string]string{"new": "old"}, want: []string{`trigger["new"].renamed_from`}},
		"a name and a schedule": {server: map[string]string{"old": "0 0 1 * * ?"}, files: map[string]string{"new": "0 0 2 * * ?"},
			from: map[string]string{"new": "old"}, want: []string{`trigger["new"].renamed_from`, `trigger["new"].expression`}},
		"a completed rename": {server: map[string]string{"new": "0 0 1 * * ?"}, files: map[string]string{"new": "0 0 1 * * ?"},
			from: map[string]string{"new": "old"}},
		"a name that is freed and taken at once": {
			server: map[string]string{"a": "0 0 1 * * ?", "b": "0 0 2 * * ?"}, files: map[string]string{"b": "0 0 1 * * ?", "c": "0 0 2 * * ?"},
			from: map[string]string{"b": "a", "c": "b"}, want: []string{`trigger["b"].renamed_from`, `trigger["c"].renamed_from`}},
		"another name without renamed_from": {server: map[string]string{"old": "0 0 1 * * ?"}, files: map[string]string{"new": "0 0 1 * * ?"},
			want: []string{`trigger["new"]`, `trigger["old"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, text := written(t, named(tt.files))
			for to, from := range tt.from {
				text = strings.Replace(text, fmt.Sprintf("= %q\n    expression", to), fmt.Sprintf("= %q\n renamed_from = %q\n expression", to, from), 1)
			}
			if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range compare(t, dir, named(tt.server)) {
				for _, a := range d.Attributes {
					got = append(got, a.Path)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("differences %v, want %v", got, tt.want)
			}
		})
	}
}
