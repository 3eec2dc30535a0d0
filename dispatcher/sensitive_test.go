package dispatcher_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestSensitiveTextsNeverShow(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	s := input.NewSensitive(secret)
	job := job("")
	job.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: s}}}
	hidden := struct {
		inner struct{ s input.Sensitive }
	}{struct{ s input.Sensitive }{s}}
	var logged bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(handler).InfoContext(t.Context(), "x", "secret", s, "job", job, "pointer", &s, "auth", job.Target.Webhook.Auth)
	}
	shown := []string{logged.String(), fmt.Errorf("x: %v", s).Error(), errors.Join(fmt.Errorf("%w: %s", errors.New("x"), s)).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%08b", "%T"} {
		for _, v := range []any{s, &s, job.Target.Webhook.Auth.Bearer, job, hidden, []input.Sensitive{s}, map[string]any{"a": s}} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
	}
	for _, v := range []any{s, &s, job, map[string]any{"a": s}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, string(text))
	}
	for _, text := range shown {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) ||
			strings.Contains(text, fmt.Sprintf("%X", secret)) {
			t.Errorf("shown in %s", text)
		}
	}
	if s.Reveal() != secret {
		t.Errorf("revealed %q", s.Reveal())
	}
}

func TestOnlyJobsForTheWireHoldSecretValues(t *testing.T) {
	t.Parallel()
	declared := job("")
	declared.Target.Webhook.Auth = &target.Auth{SigV4: &target.SigV4Auth{Service: "lambda", Region: "eu-west-1",
		Credentials: &target.AWSCredentials{
			AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: target.Secret{Value: input.NewSensitive("hunter2")},
			SessionToken: &target.Secret{Value: input.NewSensitive("hunter3")},
		}}}
	wire, _ := json.Marshal(target.ForWire(declared))
	plain, _ := json.Marshal(declared)
	for _, secret := range []string{`"hunter2"`, `"hunter3"`} {
		if !strings.Contains(string(wire), secret) || strings.Contains(string(plain), secret) {
			t.Errorf("for the wire: %s; otherwise: %s", wire, plain)
		}
	}
}

// The walk over the secrets of a target must not miss one, because it would be stored in plain text.
func TestEverySecretOfATargetIsFound(t *testing.T) {
	t.Parallel()
	to := full(reflect.TypeFor[target.Target]()).Interface().(target.Target)
	text, err := json.Marshal(target.ForWire(dispatcher.Job{JobSpec: dispatcher.JobSpec{Target: to}}))
	if err != nil {
		t.Fatal(err)
	}
	if want, got := strings.Count(string(text), `"value":"hunter2"`), len(target.Secrets(to)); want < 5 || got != want {
		t.Errorf("a target with %d secrets is said to have %d", want, got)
	}
	for path := range target.Secrets(to) {
		replaced := target.WithSecrets(to, map[string]target.Secret{path: {Stored: true}})
		if target.Secrets(replaced)[path] != (target.Secret{Stored: true}) || target.Secrets(to)[path].Stored {
			t.Errorf("secret %s is not replaced, or in the original, too", path)
		}
	}
}

// full returns a value with every pointer and map filled, and a value in every secret.
func full(typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	if typ == reflect.TypeFor[target.Secret]() {
		v.Set(reflect.ValueOf(target.Secret{Value: input.NewSensitive("hunter2")}))
		return v
	}
	switch typ.Kind() {
	case reflect.Uint8: // of a text that must be JSON
		v.SetUint('1')
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		v.Elem().Set(full(typ.Elem()))
	case reflect.Struct:
		for i := range typ.NumField() {
			v.Field(i).Set(full(typ.Field(i).Type))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(typ))
		v.SetMapIndex(reflect.ValueOf("k"), full(typ.Elem()))
	case reflect.Slice:
		v.Set(reflect.Append(v, full(typ.Elem())))
	}
	return v
}
