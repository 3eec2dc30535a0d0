package dispatcher_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestURLOfAnEndpointJoinsPathsWithOneSlash(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ endpoint, group, job, want string }{
		{"http://h", "", "", "http://h"},
		{"http://h/", "", "", "http://h/"},
		{"http://h", "", "/run", "http://h/run"},
		{"http://h/", "", "/run", "http://h/run"},
		{"http://h/base", "/tasks", "/run", "http://h/base/tasks/run"},
		{"http://h/base/", "/tasks/", "/run/", "http://h/base/tasks/run/"},
		{"http://h/base/", "/tasks/", "", "http://h/base/tasks/"},
		{"http://h/base", "/tasks", "?a=b", "http://h/base/tasks?a=b"},
		{"http://h/base/", "", "?a=b", "http://h/base/?a=b"},
		{"http://h", "/", "/run?a=/b/", "http://h/run?a=/b/"},
		{"http://h/", "/", "/", "http://h/"},
	} {
		group := target.EndpointGroup{EndpointGroupSpec: target.EndpointGroupSpec{Path: tt.group}}
		if got := group.URL(target.StaticEndpoint{URL: tt.endpoint}, tt.job); got != tt.want {
			t.Errorf("%+v: URL = %s", tt, got)
		}
		call := target.Call{Group: &target.GroupVersion{}}
		call.Target.Group = &target.GroupTarget{Name: "g", Path: tt.job}
		w, path, _, _, err := call.GroupRequest()
		if err != nil || path != tt.job || w.Method != "POST" || w.Timeout != target.DefaultTimeout {
			t.Errorf("path = %q of %+v, %v, want %q", path, w, err, tt.job)
		}
	}
}

func TestHashKeyIsFilledIn(t *testing.T) {
	t.Parallel()
	call := target.Call{App: "shop", Job: "report", Payload: []byte(`{"customer": "` + strings.Repeat("x", input.MaxPayload) + `"}`)}
	for key, want := range map[string]string{"": "shop/report", "fixed": "fixed", "{{.App}}": "shop", "{{json .Payload}}": ""} {
		to := &target.GroupTarget{Name: "g", HashKey: key}
		call.Target = target.Target{Group: to}
		var err error
		if call.Templates, err = call.Target.Templates(); err != nil {
			t.Fatal(err)
		}
		got, err := call.HashKey()
		var template *target.TemplateError
		if got != want || (want == "") != errors.As(err, &template) {
			t.Errorf("%s: key = %.50s, %v, want %s", key, got, err, want)
		}
	}
	for key, fires := range map[string]bool{"{{.NextFire}}": true, "{{.App}}": false} {
		templates, err := target.Target{Group: &target.GroupTarget{Name: "g", HashKey: key}}.Templates()
		if err != nil || templates.UseFires() != fires {
			t.Errorf("%s: UseFires = %v, %v, want %v", key, templates.UseFires(), err, fires)
		}
	}
}

// A group with callback may use the callback fields everywhere, except the token in texts that others log.
func TestTemplatesOfAGroupNameItsCallback(t *testing.T) {
	t.Parallel()
	const all = "{{.CallbackURL}}-{{.CallbackTimeout}}"
	for name, tt := range map[string]struct {
		set  func(*target.GroupTarget)
		path string // of the problem; empty if there is none
	}{
		"all allowed fields": {func(g *target.GroupTarget) { g.Path, g.HashKey, g.Body = "/"+all, all, all+"{{.CallbackToken}}" }, ""},
		"an executor's": {func(g *target.GroupTarget) {
			g.Callback, g.XXLJob = nil, &target.XXLJobRun{Handler: "h", Param: "{{.CallbackToken}}"}
		}, "/group/xxl_job/param"},
		"a token in a path":      {func(g *target.GroupTarget) { g.Path = "/{{.CallbackToken}}" }, "/group/path"},
		"a token in a hash key":  {func(g *target.GroupTarget) { g.HashKey = "{{.CallbackToken}}" }, "/group/hash_key"},
		"a body without one":     {func(g *target.GroupTarget) { g.Callback, g.Body = nil, all[:16] }, "/group/body"},
		"a hash key without one": {func(g *target.GroupTarget) { g.Callback, g.HashKey = nil, all[:16] }, "/group/hash_key"},
		"a callback too short": {func(g *target.GroupTarget) {
			g.Callback = &target.CallbackPolicy{Timeout: 1}
		}, "/group/callback/timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g target.GroupTarget
			g.SetDefaults()
			g.Name, g.Callback = "g", &target.CallbackPolicy{Timeout: run.DefaultCallbackTimeout}
			tt.set(&g)
			if g.XXLJob != nil {
				g.XXLJob.SetDefaults()
			}
			var problems input.Problems
			err := target.Target{Group: &g}.Validate()
			if errors.As(err, &problems); tt.path == "" && err != nil || tt.path != "" && (len(problems) != 1 || problems[0].Path != tt.path) {
				t.Errorf("problems = %v, want one at %q", err, tt.path)
			}
		})
	}
}

func TestWrongHashKeysAreRefused(t *testing.T) {
	t.Parallel()
	for key, code := range map[string]string{
		"{{.Nothing}}": input.CodeTemplateField, "{{.App": input.CodeTemplateSyntax,
		strings.Repeat("x", 1025): input.CodeTextTooLong, "a\x00": input.CodeTextInvalid,
	} {
		target := target.Target{Group: &target.GroupTarget{Name: "g", HashKey: key}}
		target.Group.SetDefaults()
		var problems input.Problems
		if err := target.Validate(); !errors.As(err, &problems) || len(problems) != 1 || problems[0].Path != "/group/hash_key" ||
			problems[0].Code != code {
			t.Errorf("%.20q: problems = %v, want %s at /group/hash_key", key, err, code)
		}
	}
}
