package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

// withoutMethod are the operations without a method: those of probes, Prometheus, executors and targets.
var withoutMethod = []string{"live", "ready", "openAPI", "metrics", "jobMetrics", "registerExecutor", "deregisterExecutor",
	"callBackOfExecutor", "extendRun"}

func TestEachOperationHasAMethod(t *testing.T) {
	t.Parallel()
	missing := operations(t)
	mux := http.NewServeMux()
	for pattern, id := range maps.Clone(missing) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			delete(missing, pattern)
			w.WriteHeader(http.StatusTeapot)
		})
		if slices.Contains(withoutMethod, id) {
			delete(missing, pattern)
		}
	}
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a method of the client sends %s %s, which is no operation of the API", r.Method, r.URL.Path)
	})
	c := reflect.ValueOf(newClient(t, "http://carillon.invalid", "", inTurn{mux}))
	for i := range c.NumMethod() {
		for variant := range 5 {
			in := []reflect.Value{reflect.ValueOf(t.Context())}
			for typ := range slices.Values(parameters(c.Method(i).Type())[1:]) {
				in = append(in, filled(typ, variant))
			}
			c.Method(i).Call(in)
		}
	}
	if diff := cmp.Diff(map[string]string{}, missing); diff != "" {
		t.Errorf("operations that no method of Client calls, by their route; add one (+missing):\n%s", diff)
	}
}

// operations returns the ids of all operations by pattern.
func operations(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for path, item := range document.Paths {
		for method, described := range item {
			var operation struct{ OperationID string }
			if method != "parameters" && json.Unmarshal(described, &operation) == nil {
				all[strings.ToUpper(method)+" "+path] = operation.OperationID
			}
		}
	}
	return all
}

// inTurn serves requests without a network.
type inTurn struct{ handler http.Handler }

// RoundTrip serves a request.
func (s inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func parameters(method reflect.Type) (all []reflect.Type) {
	for i := range method.NumIn() {
		all = append(all, method.In(i))
	}
	return all
}

// filled returns a value of a type with its strings set; variant selects a value where the request depends on it.
func filled(typ reflect.Type, variant int) reflect.Value {
	choose := func(values ...any) reflect.Value { return reflect.ValueOf(values[variant%len(values)]) }
	switch typ {
	case reflect.TypeFor[client.Pausable]():
		return choose(client.Pausable{App: "a", Job: "j"}, client.Pausable{App: "a", Job: "j", Trigger: "t"})
	case reflect.TypeFor[dispatcher.NodeState]():
		return choose(dispatcher.NodePaused, dispatcher.NodeActive, dispatcher.NodeDraining)
	case reflect.TypeFor[dispatcher.RollbackChoice]():
		return choose(dispatcher.RollbackSkip, dispatcher.RollbackReplay)
	case reflect.TypeFor[repeat.BackfillAction]():
		return choose(repeat.PauseBackfill, repeat.ResumeBackfill, repeat.CancelBackfill)
	}
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(variant%2 == 0)
	case reflect.Func: // a function that changes the object it gets
		v.Set(reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value { return nil }))
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(typ) {
			if f.Type.Kind() == reflect.String && f.IsExported() {
				v.FieldByIndex(f.Index).SetString("x")
			}
		}
	case reflect.Slice:
		if typ == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte("{}"))
		}
	}
	return v
}

// Without its name, the path of one thing is that of another route.
func TestEmptyNamesAreNotSent(t *testing.T) {
	t.Parallel()
	c := newClient(t, "http://carillon.test", "t", roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("asked for %s", r.URL)
	}))
	for name, ask := range map[string]func(ctx context.Context) error{
		"run":         func(ctx context.Context) error { _, err := c.Run(ctx, ""); return err },
		"app of jobs": func(ctx context.Context) error { _, err := c.Job(ctx, "", "invoices"); return err },
		"token":       func(ctx context.Context) error { return c.DeleteToken(ctx, "", client.Condition{}) },
	} {
		if err := ask(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "a name or an id is empty") {
			t.Errorf("%s: %v, want an error about the empty name", name, err)
		}
	}
}
