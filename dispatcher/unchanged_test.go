package dispatcher_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestDeclaringASecretAgainIsAChange(t *testing.T) {
	t.Parallel()
	with := func(secret target.Secret) dispatcher.Job {
		j := dispatcher.Job{App: "shop", Name: "report",
			JobSpec: dispatcher.JobSpec{Enabled: true, Target: target.Target{Webhook: &target.Webhook{
				URL: "https://example.com/", Auth: &target.Auth{Bearer: &target.BearerAuth{Token: secret}},
			}}}}
		j.SetDefaults()
		return j
	}
	stored := with(target.Secret{Stored: true})
	if !stored.Declares(stored) {
		t.Error("a secret that keeps its stored value is taken for a change")
	}
	if stored.Declares(with(target.Secret{Value: input.NewSensitive("value")})) {
		t.Error("a value that is given is taken for the one that is stored: a client could guess it")
	}
	if stored.Declares(with(target.Secret{Reference: "env:SECRET_SHOP_KEY"})) {
		t.Error("a reference is taken for the value that is stored")
	}
}

func TestSpacesInAPayloadAreNoChange(t *testing.T) {
	t.Parallel()
	with := func(payload string) dispatcher.Job {
		return dispatcher.Job{App: "shop", Name: "report", JobSpec: dispatcher.JobSpec{Payload: []byte(payload)}}
	}
	if !with(`{"n": 1}`).Declares(with(`{"n":1}`)) {
		t.Error("a payload as the API returns it, without spaces, is taken for a change")
	}
	if with(`{"n": 1}`).Declares(with(`{"n": 2}`)) {
		t.Error("another payload is taken for no change")
	}
}
