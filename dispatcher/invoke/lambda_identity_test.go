package invoke_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// T4: the identity of a role session is the app's, whatever the job declares, so trust policies can distinguish apps.
func TestRoleSessionsCarryTheIdentityOfTheApp(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(http.ResponseWriter, *http.Request) {})
	i := s.invoker()
	long := strings.Repeat("a", 63)
	names := map[string]string{}
	for _, app := range []string{"payments", long, long[:62] + "b", long[:55]} {
		call := invocation(func(l *target.Lambda) {
			l.AssumeRole = &target.AssumeRole{
				RoleARN: "arn:aws:iam::123456789012:role/caller", SessionTags: map[string]string{"Carillon:App": "other", "team": "crm"},
			}
		})
		call.App, call.AWSExternalID = app, "ext-"+app
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Fatalf("outcome = %+v, want success", o)
		}
		name := s.assumed.Get("RoleSessionName")
		if !strings.HasPrefix(name, "carillon-"+app[:min(len(app), 40)]) || len(name) > 64 || names[name] != "" {
			t.Errorf("session of app %s is named %s, which app %q has, too", app, name, names[name])
		}
		names[name] = app
		tags := map[string]string{}
		for n := 1; s.assumed.Get(fmt.Sprintf("Tags.member.%d.Key", n)) != ""; n++ {
			tags[s.assumed.Get(fmt.Sprintf("Tags.member.%d.Key", n))] = s.assumed.Get(fmt.Sprintf("Tags.member.%d.Value", n))
		}
		want := map[string]string{"carillon:app": app, "carillon:job": "ping", "team": "crm"}
		if diff := cmp.Diff(want, tags); diff != "" || s.assumed.Get("ExternalId") != "ext-"+app {
			t.Errorf("app %s: external id %s, tags (-want +got):\n%s", app, s.assumed.Get("ExternalId"), diff)
		}
	}
	call := invocation(func(l *target.Lambda) {
		l.AssumeRole = &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/caller"}
	})
	call.AWSExternalID = ""
	if o := i.Invoke(t.Context(), call); o.Class != run.ClassCredentials || s.count() != 4 {
		t.Errorf("outcome = %+v after %d invocations, want no role to be assumed without an external id", o, s.count())
	}
}

// T4: a node invokes no function and assumes no role that an operator did not allow.
func TestFunctionsAndRolesOutsideTheBoundsAreRefused(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(http.ResponseWriter, *http.Request) {})
	i := s.invoker()
	const role, function = "arn:aws:iam::123456789012:role/caller", "arn:aws:lambda:eu-central-1:123456789012:function:billing"
	for name, bounds := range map[string]*target.Bounds{
		"the defaults": nil,
		"functions": {Lambda: target.LambdaBounds{
			Functions: []string{"arn:aws:lambda:*:123456789012:function:crm-*"}, Roles: []string{"*"}}},
		"roles": {Lambda: target.LambdaBounds{
			Functions: []string{function}, Roles: []string{"arn:aws:iam::123456789012:role/crm-*"}}},
	} {
		call := invocation(func(l *target.Lambda) {
			l.Function, l.AssumeRole = function+":live", &target.AssumeRole{RoleARN: role}
		})
		call.Bounds = bounds
		if o := i.Invoke(t.Context(), call); o.Class != run.ClassBounds || !o.NotSent || s.count() != 0 || s.assumed != nil {
			t.Errorf("%s: outcome = %+v after %d invocations, want class bounds before any", name, o, s.count())
		}
	}
}

// The credentials of a role never reach the ledger, even if a function finds and returns them.
func TestCredentialsOfARoleAreNotKept(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) {
		text := "role-secret " + base64.StdEncoding.EncodeToString([]byte("x role-secret y")) + " role-token"
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		w.Header().Set("X-Amz-Log-Result", base64.StdEncoding.EncodeToString([]byte(text)))
		fmt.Fprintf(w, `{"errorMessage":%q}`, text)
	})
	o := s.invoker().Invoke(t.Context(), invocation(func(l *target.Lambda) {
		l.AssumeRole = &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/caller"}
	}))
	text := fmt.Sprintf("%+v %+v", o, o.Response)
	if o.Class != run.ClassFunctionError || strings.Contains(text, "role-secret") || strings.Contains(text, "role-token") ||
		strings.Contains(text, "cm9sZS1zZWNyZXQ") || strings.Contains(text, "JvbGUtc2VjcmV0") || strings.Contains(text, "yb2xlLXNlY3JldC") {
		t.Errorf("outcome = %s, want it without the credentials", text)
	}
}
