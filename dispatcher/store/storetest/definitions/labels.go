package definitions

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// Jobs are found by all the labels that are asked for, page by page; a part of a label is another label.
func testJobLabels(t *testing.T, f *wing) {
	for name, labels := range map[string]input.Labels{
		"a": {"team": "pay", "tier": "1"}, "b": {"team": "pay"}, "c": {"team": "payments", "tier": "1"}, "d": nil,
		"e": {"xteam": "pay", "tier": "1", "a.b": "c_d"}, "f": {"team": "pay", "tier": "1", "zone": "eu"}, "g": {"a.b": "cxd"},
	} {
		j := fixture.Job(name, nil)
		j.Labels = labels
		f.Put(j, fixture.T0)
	}
	for _, tt := range []struct {
		labels input.Labels
		want   string
	}{
		{nil, "a b c d e f g"},
		{input.Labels{"team": "pay"}, "a b f"},
		{input.Labels{"team": "pay", "tier": "1"}, "a f"},
		{input.Labels{"tier": "1"}, "a c e f"},
		{input.Labels{"a.b": "c_d"}, "e"},
		{input.Labels{"team": "none"}, ""},
	} {
		var names []string
		for cursor := ""; ; cursor = names[len(names)-1] {
			page, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 2, Cursor: cursor, Labels: tt.labels})
			f.Must(err)
			if len(page) == 0 {
				break
			}
			for _, j := range page {
				names = append(names, j.Name)
			}
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("jobs with %v: got %q, want %q", tt.labels, got, tt.want)
		}
	}
}
