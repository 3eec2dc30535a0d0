package gate

import (
	"net/http/httptest"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func keysOf(l *limits, r *Request) map[string]bool {
	keys := map[string]bool{}
	for _, one := range l.placesOf(r) {
		keys[one.Key] = true
	}
	return keys
}

// Neither other requests of the app nor its executors delay a callback, because then its work would be repeated.
func TestCallbacksHavePlacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := newLimits(Limits{}, nil)
	hr := httptest.NewRequest("POST", "/", nil)
	token := access.APIToken{Name: run.ActorCallback, TokenSpec: access.TokenSpec{Apps: []string{"crm"}}}
	callback := keysOf(l, &Request{Request: hr, Token: token, Attempt: 1})
	executor := keysOf(l, &Request{Request: hr, Token: token, Executors: &target.EndpointGroup{}})
	other := keysOf(l, &Request{Request: hr, Token: access.APIToken{ID: "t", Name: "t", TokenSpec: access.TokenSpec{Apps: []string{"crm"}}}})
	for _, key := range []string{"callbacks of app crm", "executors of app crm", "app crm"} {
		if n := boolToInt(callback[key]) + boolToInt(executor[key]) + boolToInt(other[key]); n != 1 {
			t.Errorf("%d kinds of requests count for %q, want 1; %v, %v, %v", n, key, callback, executor, other)
		}
	}
	if callback["token "+run.ActorCallback] {
		t.Error("callbacks of all apps share the places of one token")
	}
}

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Work for apps and for operators may take three quarters of the connections together.
func TestPlacesLeaveConnections(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{8, 16, 64, 512, 100_000} {
		l := newLimits(Limits{Connections: connections, AddressConnections: max(4, connections/8)}, nil)
		if held := l.appPlaces() + l.operatorPlaces(); held > connections*3/4 {
			t.Errorf("of %d connections, %d may be held, want three quarters at most", connections, held)
		}
		if one := l.callerPlaces(); one < 1 || one > l.appPlaces() {
			t.Errorf("of %d connections, an app may take %d, all apps together %d", connections, one, l.appPlaces())
		}
	}
}
