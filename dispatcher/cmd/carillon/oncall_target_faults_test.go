package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
)

// failing has a job that calls a URL each second, without retries, and an alert of each condition.
func failing(url, more string) map[string]string {
	return map[string]string{
		"alerts/all": alertsOfAll,
		"jobs/job": fmt.Sprintf(`{"target":{"webhook":{"url":%q,"timeout":"1s"%s}},"retry":{"max_attempts":1},
			"triggers":{"t":{"expression":"rate(1s)"}}}`, url, more),
	}
}

// failed are the signals of a job that fails with a class.
func failed(class string, more ...string) []string {
	return append([]string{"app: failed job " + class, "app: alerts job failure " + class, "app: alert failure of firing",
		"CarillonAppFails"}, more...)
}

// hostDown are the further signals of a host that fails.
var hostDown = []string{"app: circuits job", "CarillonCircuitOpen"}

// attemptsFail are the rule for all apps together, which depends on how much the others do, and the alert that a failure
// holds back: it stands, and is not sent.
var attemptsFail = []string{"CarillonAttemptsFail", "app: alerts job late"}

// hang takes requests and never responds.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when the client hangs up
	<-r.Context().Done()
}

func responds(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// closedServer returns the URL of a server that is gone.
func closedServer() string {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	return gone.URL
}

// targetFaults are faults of targets, and of the way to them.
func targetFaults() []fault {
	reset := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("some"))
		panic(http.ErrAbortHandler)
	}
	none := func(expects string) map[string]string { return failing("{target}", `,"expect_body":"`+expects+`"`) }
	return []fault{
		{name: "target responds 500", declares: failing("{target}", ""), respond: responds(500),
			rings: failed("http_5xx", hostDown...), may: attemptsFail},
		{name: "target responds 503", declares: failing("{target}", ""), respond: responds(503),
			rings: failed("http_5xx", hostDown...), may: attemptsFail},
		{name: "target refuses connections", declares: failing(closedServer(), ""),
			rings: failed("connect_refused", hostDown...), may: attemptsFail},
		{name: "target is slow", declares: failing("{target}", ""), respond: hang,
			rings: failed("timeout", hostDown...), may: attemptsFail},
		{name: "target breaks connections", declares: failing("{target}", ""), respond: reset,
			rings: failed("reset", hostDown...), may: attemptsFail},
		{name: "name of the target is gone", declares: failing("http://gone.invalid/", ""),
			rings: failed("dns", hostDown...), may: attemptsFail},
		{name: "target has no certificate", declares: failing("https://{host}/", ""),
			rings: failed("tls", hostDown...), may: attemptsFail},
		{name: "target redirects", declares: failing("{target}", ""), respond: responds(302),
			rings: failed("redirect"), may: attemptsFail},
		{name: "target responds 404", declares: failing("{target}", ""), respond: responds(404),
			rings: failed("http_4xx"), may: attemptsFail},
		{name: "target responds another body", declares: none("done"),
			rings: failed("body"), may: attemptsFail},
		{name: "target is gone for good", declares: failing("{target}", ""), respond: responds(410),
			rings: []string{"app: failed job http_4xx", "app: alerts job failure http_4xx", "app: alert failure of firing",
				"app: quarantined job", "CarillonQuarantined"}, may: []string{"app: misfires"}},
		{name: "target asks for less", declares: failing("{target}", ""), respond: responds(429),
			rings: failed("rate_limited"), may: attemptsFail},
		{name: "target is outside of the allowed networks", declares: failing("http://10.0.0.1/", ""),
			rings: failed("egress_denied"), may: attemptsFail},
		{name: "callback never comes", respond: responds(202), declares: failing("{target}", `,"callback":{"timeout":"2s"}`),
			rings: failed("callback_timeout"), may: attemptsFail},
		{name: "no endpoint of a group is up", declares: map[string]string{
			"groups/fleet": fmt.Sprintf(`{"endpoints":{"one":{"url":%q}},"health_check":{"path":"/healthz","interval":"1s"}}`, closedServer()),
			"jobs/job":     `{"target":{"group":{"name":"fleet"}},"retry":{"max_attempts":1},"triggers":{"t":{"expression":"rate(1s)"}}}`,
			"alerts/all":   alertsOfAll}, rings: failed("no_endpoint", append(hostDown, "CarillonGroupDown")...), may: attemptsFail},
		{name: "group has no endpoint", declares: map[string]string{
			"groups/fleet": `{"registration":{"networks":["127.0.0.0/8"],"ports":[9999],"heartbeat":"1s","expire_after":"3s"}}`,
			"jobs/job":     `{"target":{"group":{"name":"fleet"}},"retry":{"max_attempts":1},"triggers":{"t":{"expression":"rate(1s)"}}}`,
			"alerts/all":   alertsOfAll},
			rings: failed("no_endpoint", append(hostDown, "app: groups job fleet", "CarillonGroupWithoutEndpoint", "CarillonGroupDown")...),
			may:   attemptsFail},
		{name: "destination of an alert is down", respond: responds(500), declares: map[string]string{
			"jobs/job":   failing("{target}", "")["jobs/job"],
			"alerts/all": `{"failure":{"after":1},"destination":{"webhook":{"url":"http://gone.invalid/"}}}`},
			rings: []string{"app: failed job http_5xx", "app: alerts job failure http_5xx", "CarillonAppFails", "app: circuits job",
				"CarillonCircuitOpen", "CarillonUndelivered"}, may: attemptsFail},
	}
}
