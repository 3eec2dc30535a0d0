package access

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// found returns the codes and pointers in an error.
func found(err error) (all []string) {
	var problems input.Problems
	problems.AddError("", err)
	for _, p := range problems {
		all = append(all, p.Code+" "+p.Path)
	}
	return all
}

func TestPutDecidesAboutAnApp(t *testing.T) {
	t.Parallel()
	operator, owner := input.Change{Actor: "op", Operator: true}, input.Change{Actor: "ann"}
	suspended := func() *target.Bounds {
		bounds := target.Bounds{}.WithDefaults("crm")
		bounds.Suspended, bounds.SuspendedReason = true, "unpaid"
		return &bounds
	}
	for name, tt := range map[string]struct {
		before  AppBefore
		app     App
		by      input.Change
		want    []string
		enabled bool
	}{
		"new": {AppBefore{Enabled: true}, App{AppSpec: AppSpec{Enabled: true}}, owner, nil, true},
		"named like another": {AppBefore{Names: []string{"c-rm"}}, App{Name: "c_rm"}, owner,
			[]string{"name_taken /name"}, false},
		"bounds by an owner": {AppBefore{Revision: 1}, App{AppSpec: AppSpec{Bounds: suspended()}}, owner,
			[]string{"bound_operator /bounds"}, false},
		"suspended by an operator": {AppBefore{Revision: 1, Enabled: true},
			App{AppSpec: AppSpec{Enabled: true, Bounds: suspended()}}, operator, nil, false},
		"retention above the quota": {AppBefore{Revision: 1}, App{AppSpec: AppSpec{Retention: input.Duration(input.MaxRetention)}}, owner,
			[]string{"bound_quota /retention"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.app.Name == "" {
				tt.app.Name = "crm"
			}
			c, err := tt.before.Put(tt.app, tt.by, noon)
			if diff := cmp.Diff(tt.want, found(err)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if err == nil && (c.Enabled != tt.enabled || c.Switched != (tt.enabled != tt.before.Enabled) || c.Created != (tt.before.Revision == 0)) {
				t.Errorf("got %+v", c)
			}
			if err == nil && c.Bounds.Suspended && (c.Bounds.SuspendedBy != "op" || !c.Bounds.SuspendedAt.Equal(noon)) {
				t.Errorf("suspended by %q at %v, want op now", c.Bounds.SuspendedBy, c.Bounds.SuspendedAt)
			}
		})
	}
}

func token(id, name string, scope Scope) APIToken {
	return APIToken{ID: id, Name: name, TokenSpec: TokenSpec{Scopes: []Scope{scope}}, TokenStatus: TokenStatus{Revision: 1}}
}

// A token cannot remove the last way to manage tokens: by its own end, fewer scopes, or a restriction to apps.
func TestLastTokenThatCanManageTokensStays(t *testing.T) {
	t.Parallel()
	admin := token("1", "admin", ScopeAdmin)
	other := token("2", "reader", ScopeRead)
	second := token("3", "second", ScopeAdmin)
	bound, fewer, ending := admin, admin, admin
	bound.Apps, fewer.Scopes, ending.ExpiresAt = []string{"crm"}, []Scope{ScopeRead}, new(noon.Add(time.Hour))
	boundToo := second
	boundToo.Apps = []string{"crm"}
	by := input.Change{TokenID: "1"}
	for name, tt := range map[string]struct {
		all  []APIToken
		put  APIToken
		by   input.Change
		want error
	}{
		"bound to an app":        {[]APIToken{admin, other}, bound, by, dispatcher.ErrLastAdmin},
		"fewer scopes":           {[]APIToken{admin, other}, fewer, by, dispatcher.ErrLastAdmin},
		"it ends later":          {[]APIToken{admin, other}, ending, by, nil},
		"with another admin":     {[]APIToken{admin, second}, bound, by, nil},
		"by the command line":    {[]APIToken{admin, other}, bound, input.Change{}, nil},
		"another token, bounded": {[]APIToken{admin, second}, boundToo, by, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := (TokensBefore{tt.all}).Put(tt.put, tt.by, noon); !errors.Is(err, tt.want) {
				t.Errorf("put: got %v, want %v", err, tt.want)
			}
		})
	}
	if _, err := (TokensBefore{[]APIToken{admin, other}}).Delete("admin", by, noon); !errors.Is(err, dispatcher.ErrLastAdmin) {
		t.Errorf("delete the last: got %v", err)
	}
	if _, err := (TokensBefore{[]APIToken{admin, other}}).Delete("none", by, noon); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("delete what there is not: got %v", err)
	}
}

func TestRotationKeepsTheExpiryByDefault(t *testing.T) {
	t.Parallel()
	token := APIToken{Name: "ci", TokenSpec: TokenSpec{ExpiresAt: new(noon.Add(time.Hour))}}
	next, err := token.Rotated(TokenRotation{Hash: [32]byte{1}, Overlap: input.Duration(2 * time.Hour)}, noon)
	if err != nil || !next.ExpiresAt.Equal(*token.ExpiresAt) || !next.RotatedUntil.Equal(*token.ExpiresAt) || next.Hash != [32]byte{1} {
		t.Errorf("got %+v, %v; want it, and the old secret, until %v", next, err, token.ExpiresAt)
	}
	later := noon.Add(24 * time.Hour)
	if next, err = token.Rotated(TokenRotation{ExpiresAt: &later}, noon); err != nil || !next.ExpiresAt.Equal(later) {
		t.Errorf("with a later end: %v, %v", next.ExpiresAt, err)
	}
	if _, err := token.Rotated(TokenRotation{}, later); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("one that has ended: %v", err)
	}
}
