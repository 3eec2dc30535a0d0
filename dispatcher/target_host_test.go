package dispatcher_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A host has one name in all spellings of its URL. Otherwise its limits, rates and circuits could be evaded.
func TestHostHasOneName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://api.example.com/a":             "api.example.com",
		"https://API.Example.com:443/b?c=d":     "api.example.com",
		"https://api.example.com./":             "api.example.com",
		"http://api.example.com:80":             "api.example.com",
		"http://api.example.com:443/":           "api.example.com:443",
		"https://api.example.com:8443/{{.Job}}": "api.example.com:8443",
		"http://[0:0:0:0:0:0:0:1]:8080/":        "[::1]:8080",
		"http://[::ffff:192.0.2.1]/":            "192.0.2.1",
		"http://api.example.com:080/":           "api.example.com",
		"https://api.example.com:00443/":        "api.example.com",
		"http://[64:ff9b::192.0.2.1]/":          "192.0.2.1",
		"http://[2001:DB8:0::1]:80/":            "[2001:db8::1]",
		"HTTP://API.example.com.:80/":           "api.example.com",
	} {
		if got, _ := (target.Target{Webhook: &target.Webhook{URL: text}}).Host(); got != want {
			t.Errorf("host of %s = %q, want %q", text, got, want)
		}
	}
}

func TestHostOfAFunctionIdentifiesIt(t *testing.T) {
	t.Parallel()
	const arn, role = "arn:aws:lambda:eu-central-1:123456789012:function:f:live", "arn:aws:iam::210987654321:role/invoker"
	assume := &target.AssumeRole{RoleARN: role}
	for want, l := range map[string]target.Lambda{
		"lambda:function:f":                                   {Function: "f"},
		"lambda:eu-west-1:function:f":                         {Function: "f:live", Region: "eu-west-1"},
		"lambda:123456789012:function:f":                      {Function: "123456789012:function:f"},
		"lambda:123456789012:function:function":               {Function: "123456789012:function:function:function"},
		"lambda:123456789012:eu-central-1:function:f":         {Function: arn, Concurrency: 7},
		"lambda:123456789012:eu-central-1:function:f:" + role: {Function: arn, AssumeRole: assume},
		"lambda:function:g:" + role:                           {Function: "g", AssumeRole: assume},
		"lambda:function:function":                            {Function: "function:live"},
	} {
		if got, atOnce := (target.Target{Lambda: &l}).Host(); got != want || atOnce != l.Concurrency {
			t.Errorf("host of %s = %q, %d at once; want %q, %d", l.Function, got, atOnce, want, l.Concurrency)
		}
	}
}

func TestWarningOnlyAboutPlainHTTPToAnotherMachine(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{
		"https://example.com/": 0, "http://example.com/": 1, "HTTP://example.com/": 1, "http://10.0.0.1:8080/": 1,
		"http://localhost.example.com/": 1, "http://127.0.0.1.example.com/": 1,
		"http://127.0.0.1:8080/": 0, "http://127.9.9.9/": 0, "http://localhost:1/{{.Job}}": 0, "http://LOCALHOST/": 0,
		"http://a.localhost/": 0, "http://[::1]:8080/": 0, "http://[::ffff:127.0.0.1]/": 0,
	} {
		job := dispatcher.Job{JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{
			URL: address, Method: "GET", Auth: &target.Auth{Bearer: &target.BearerAuth{}},
		}}}}
		if got := job.Warn(nil); len(got) != want {
			t.Errorf("%s: %v, want %d warnings", address, got, want)
		}
	}
}
