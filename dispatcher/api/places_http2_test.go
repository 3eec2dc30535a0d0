package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
)

// stream is a request with a slow body among others in one connection.
type stream struct {
	asked  chan struct{} // closed once the node asks for the body
	answer chan answered // the final response; one without a status if the connection failed
}

// stream sends the header, and then a byte of the body now and then once the node asks for it.
func (s sender) stream(t *testing.T, client *http.Client, node string) stream {
	t.Helper()
	one := stream{make(chan struct{}), make(chan answered, 1)}
	out, in := io.Pipe()
	t.Cleanup(func() { _ = in.Close() })
	trace := &httptrace.ClientTrace{Got100Continue: func() { close(one.asked) }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, node+s.path, out)
	if err != nil {
		t.Fatal(err)
	}
	request.ContentLength = 100_000
	request.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + s.token}, "Expect": {"100-continue"}}
	go func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			if _, err := in.Write([]byte(" ")); err != nil { // waits until the node asks for it
				return
			}
			<-ticker.C
		}
	}()
	go func() {
		response, err := client.Do(request)
		if err != nil {
			one.answer <- answered{text: err.Error()}
			return
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		one.answer <- answered{response, string(text)}
	}()
	return one
}

// Over HTTP/2, bodies count one by one, however many use one connection, and each slow one is cut separately.
func TestSlowBodiesInOneConnectionCountEach(t *testing.T) {
	t.Parallel()
	const preview = "/v1/schedules/preview"
	for name, tt := range map[string]struct {
		slow    map[string]int // by token
		refused string
		why     string
		served  []string
	}{
		"for their app":     {map[string]int{"crm": 8, "crm too": 8}, "crm", "app crm", []string{"sales", "operator"}},
		"for their address": {map[string]int{"crm": 16, "sales": 4}, "hr", "address 127.0.0.1", []string{"operator"}},
		"for their token":   {map[string]int{"operator": 8}, "operator", "token operator", []string{"crm", "second operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, api.Options{Limits: gate.Limits{Connections: 32, AddressConnections: 40}})
			secrets := map[string]string{}
			for name, apps := range map[string][]string{"crm": {"crm"}, "crm too": {"crm"}, "sales": {"sales"}, "hr": {"hr"}, "operator": nil,
				"second operator": nil} {
				for _, app := range apps {
					w.do("PUT", "/v1/apps/"+app, `{}`)
				}
				secrets[name] = w.newToken(strings.ReplaceAll(name, " ", "-"), writes, apps...)
			}
			server := httptest.NewUnstartedServer(w.api)
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			client := server.Client()
			client.Transport.(*http.Transport).ExpectContinueTimeout = patience
			begin := func(token string) stream {
				return sender{token: secrets[token], path: preview}.stream(t, client, server.URL)
			}
			// want waits until the node asks for the body of a stream, or responds.
			want := func(token string, one stream) *answered {
				select {
				case <-one.asked:
					return nil
				case got := <-one.answer:
					return &got
				case <-time.After(patience):
					t.Fatalf("a body of %s was neither asked for nor refused", token)
				}
				return nil
			}
			var all []stream
			for token, count := range tt.slow {
				for range count {
					one := begin(token)
					if got := want(token, one); got != nil {
						t.Fatalf("a body of %s got %s", token, got.text)
					}
					all = append(all, one)
				}
			}
			got := want(tt.refused, begin(tt.refused))
			if got == nil || got.Response == nil || got.StatusCode != http.StatusTooManyRequests || !strings.Contains(got.text, tt.why) ||
				got.ProtoMajor != 2 {
				t.Errorf("one more body of %s got %+v, want 429 over HTTP/2 because of %s", tt.refused, got, tt.why)
			}
			for _, token := range tt.served {
				one := begin(token)
				if got := want(token, one); got != nil {
					t.Errorf("a body of %s got %s", token, got.text)
				}
				all = append(all, one)
			}
			w.must(http.StatusOK, "GET", "/livez", "")
			w.must(http.StatusOK, "GET", "/v1/apps", "")
			for _, one := range all {
				if got := <-one.answer; got.Response == nil || got.StatusCode != http.StatusRequestTimeout {
					t.Errorf("a body that trickles got %+v, %s; want 408", got.Response, got.text)
				}
			}
		})
	}
}
