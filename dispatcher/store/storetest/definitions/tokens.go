package definitions

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func tokenTests() tests {
	return tests{
		"tokens are created, found and revoked":               testTokens,
		"a token is changed, but not its id and its secret":   testTokenChanges,
		"a rotated token works with both secrets for a while": testTokenRotation,
		"the use of tokens is recorded once a minute":         testTokenUse,
		"no token revokes the last that can manage tokens":    testLastAdminToken,
	}
}

// aToken returns a token of an app's pipeline.
func aToken(id, name string, scopes ...access.Scope) access.APIToken {
	return access.APIToken{ID: id, Name: name, Hash: [32]byte{id[0]}, TokenSpec: access.TokenSpec{Scopes: scopes},
		TokenStatus: access.TokenStatus{CreatedAt: fixture.T0, Revision: 1}}
}

func testTokens(t *testing.T, f *wing) {
	ctx := t.Context()
	token := aToken("1", "ci", access.ScopeWrite)
	token.Apps = []string{"shop"}
	f.Must(f.CreateToken(ctx, token))
	other := aToken("2", "ci", access.ScopeRead)
	fixture.WantError(t, "create a token whose name is taken", f.CreateToken(ctx, other), dispatcher.ErrPrecondition)
	other.Name = "all"
	f.Must(f.CreateToken(ctx, other))

	got, err := f.TokenByHash(ctx, token.Hash)
	f.Must(err)
	if diff := cmp.Diff(token, got); diff != "" {
		t.Error("token by hash (-want +got):\n" + diff)
	}
	_, err = f.TokenByHash(ctx, [32]byte{9})
	fixture.WantError(t, "unknown token", err, dispatcher.ErrNotFound)
	got, err = f.Token(ctx, "ci")
	f.Must(err)
	if diff := cmp.Diff(token, got); diff != "" {
		t.Error("token by name (-want +got):\n" + diff)
	}
	_, err = f.Token(ctx, "none")
	fixture.WantError(t, "no token", err, dispatcher.ErrNotFound)
	all, err := f.Tokens(ctx, input.Page{Limit: 10})
	f.Must(err)
	if diff := cmp.Diff([]access.APIToken{other, token}, all); diff != "" {
		t.Error("tokens (-want +got):\n" + diff)
	}
	all, err = f.Tokens(ctx, input.Page{Limit: 10, Cursor: "all"})
	f.Must(err)
	if diff := cmp.Diff([]access.APIToken{token}, all); diff != "" {
		t.Error("second page of tokens (-want +got):\n" + diff)
	}
	fixture.WantError(t, "delete another revision", f.DeleteToken(ctx, "ci", input.Change{IfRevision: 2}), dispatcher.ErrPrecondition)
	f.Must(f.DeleteToken(ctx, "ci", input.Change{}))
	fixture.WantError(t, "delete twice", f.DeleteToken(ctx, "ci", input.Change{}), dispatcher.ErrNotFound)
	_, err = f.TokenByHash(ctx, token.Hash)
	fixture.WantError(t, "deleted token", err, dispatcher.ErrNotFound)
}

func testTokenChanges(t *testing.T, f *wing) {
	ctx := t.Context()
	expires := fixture.T0.Add(time.Hour)
	token := aToken("1", "ci", access.ScopeWrite, access.ScopeRead, access.ScopeRead)
	token.Apps, token.ExpiresAt = []string{"shop", "crm", "shop"}, &expires
	stored, created, err := f.PutToken(ctx, token, fixture.At(fixture.T0))
	f.Must(err)
	token.Scopes, token.Apps = []access.Scope{access.ScopeRead, access.ScopeWrite}, []string{"crm", "shop"}
	if diff := cmp.Diff(token, stored); diff != "" || !created {
		t.Errorf("created %v (-want +got):\n%s", created, diff)
	}

	changed := token
	changed.ID, changed.Hash, changed.Description, changed.Apps = "2", [32]byte{2}, "of the pipeline", nil
	_, _, err = f.PutToken(ctx, changed, input.Change{IfRevision: 2, Now: fixture.T0})
	fixture.WantError(t, "change another revision", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutToken(ctx, changed, input.Change{IfAbsent: true, Now: fixture.T0})
	fixture.WantError(t, "create again", err, dispatcher.ErrPrecondition)
	// The expiry has passed, but it does not change.
	stored, created, err = f.PutToken(ctx, changed, input.Change{IfRevision: 1, Now: fixture.T0.Add(2 * time.Hour)})
	f.Must(err)
	changed.ID, changed.Hash, changed.Revision = token.ID, token.Hash, 2
	if diff := cmp.Diff(changed, stored); diff != "" || created {
		t.Errorf("changed; created %v (-want +got):\n%s", created, diff)
	}
	past := fixture.T0.Add(-time.Minute)
	changed.ExpiresAt = &past
	if _, _, err = f.PutToken(ctx, changed, fixture.At(fixture.T0)); !hasProblem(err, "/expires_at") {
		t.Errorf("an expiry in the past gives %v, want a problem with expires_at", err)
	}
	if _, _, err = f.PutToken(ctx, access.APIToken{Name: "x"}, fixture.At(fixture.T0)); !hasProblem(err, "/scopes") {
		t.Errorf("a token without scopes gives %v, want a problem with scopes", err)
	}
}

func hasProblem(err error, path string) bool {
	var problems input.Problems
	return errors.As(err, &problems) && problems[0].Path == path
}

func testTokenRotation(t *testing.T, f *wing) {
	ctx := t.Context()
	expires := fixture.T0.Add(48 * time.Hour)
	token := aToken("1", "ci", access.ScopeRead)
	token.ExpiresAt = &expires
	f.Must(f.CreateToken(ctx, token))
	rotate := func(hash byte, overlap time.Duration, until *time.Time, now time.Time) (access.APIToken, error) {
		return f.RotateToken(ctx, "ci",
			access.TokenRotation{Hash: [32]byte{hash}, Overlap: input.Duration(overlap), ExpiresAt: until}, fixture.At(now))
	}
	first, err := rotate(2, time.Hour, nil, fixture.T0)
	f.Must(err)
	if first.ID != "1" || first.Hash != [32]byte{2} || first.Revision != 2 || first.RotatedUntil == nil ||
		!first.RotatedUntil.Equal(fixture.T0.Add(time.Hour)) {
		t.Errorf("rotated token is %+v", first)
	}
	for _, hash := range [][32]byte{token.Hash, {2}} {
		got, err := f.TokenByHash(ctx, hash)
		f.Must(err)
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("token by hash %d (-want +got):\n%s", hash[0], diff)
		}
	}
	second, err := rotate(3, 72*time.Hour, nil, fixture.T0.Add(time.Minute))
	f.Must(err)
	if !second.RotatedUntil.Equal(expires) {
		t.Errorf("the old secret works until %s, want no longer than the token, %s", second.RotatedUntil, expires)
	}
	_, err = f.TokenByHash(ctx, token.Hash)
	fixture.WantError(t, "the secret before the last one", err, dispatcher.ErrNotFound)

	_, err = rotate(4, 0, nil, expires)
	fixture.WantError(t, "rotate an expired token", err, dispatcher.ErrConflict)
	later := expires.Add(time.Hour)
	renewed, err := rotate(4, 0, &later, expires)
	f.Must(err)
	if !renewed.ExpiresAt.Equal(later) || renewed.RotatedUntil.After(expires) {
		t.Errorf("renewed token is %+v, want it to expire at %s, and its old secret not to work", renewed, later)
	}
	_, err = f.RotateToken(ctx, "none", access.TokenRotation{}, fixture.At(fixture.T0))
	fixture.WantError(t, "rotate no token", err, dispatcher.ErrNotFound)
	if _, err = rotate(5, 31*24*time.Hour, nil, fixture.T0); !hasProblem(err, "/overlap") {
		t.Errorf("an overlap of 31 days gives %v, want a problem with overlap", err)
	}
}

func testTokenUse(t *testing.T, f *wing) {
	ctx := t.Context()
	f.Must(f.CreateToken(ctx, aToken("1", "ci", access.ScopeRead)))
	used := func(at time.Time, want time.Time) {
		t.Helper()
		f.Must(f.UseTokens(ctx, map[string]time.Time{"1": at, "none": at}))
		got, err := f.Token(ctx, "ci")
		f.Must(err)
		if got.LastUsedAt == nil || !got.LastUsedAt.Equal(want) || got.Revision != 1 {
			t.Errorf("used at %s: got %+v, want last use at %s and revision 1", at, got, want)
		}
	}
	used(fixture.T0, fixture.T0)
	used(fixture.T0.Add(time.Second), fixture.T0)
	used(fixture.T0.Add(-time.Hour), fixture.T0)
	used(fixture.T0.Add(time.Hour), fixture.T0.Add(time.Hour))
}

// Two requests with different tokens revoke each other's.
func testLastAdminToken(t *testing.T, f *wing) {
	ctx := t.Context()
	expires := fixture.T0.Add(time.Minute)
	expired := aToken("9", "expired", access.ScopeAdmin)
	expired.ExpiresAt = &expires
	f.Must(f.CreateToken(ctx, expired))
	for _, name := range []string{"a", "b"} {
		f.Must(f.CreateToken(ctx, aToken(name, name, access.ScopeAdmin)))
	}
	by := input.Change{Actor: "admin", TokenID: "a", Now: fixture.T0.Add(time.Hour)}
	var errs [2]error
	var both sync.WaitGroup
	for i, name := range []string{"a", "b"} {
		both.Go(func() { errs[i] = f.DeleteToken(ctx, name, by) })
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), dispatcher.ErrLastAdmin) {
		t.Fatalf("revoking both admins gives %v and %v, want one ErrLastAdmin", errs[0], errs[1])
	}
	left := map[bool]string{true: "a", false: "b"}[errs[0] != nil]
	demoted := aToken(left, left, access.ScopeRead)
	_, _, err := f.PutToken(ctx, demoted, by)
	fixture.WantError(t, "take admin from the last one", err, dispatcher.ErrLastAdmin)
	by.TokenID = ""
	f.Must(f.DeleteToken(ctx, left, by))
}
