package invoke_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// awsServer serves the Invoke API and AssumeRole of STS. It refuses requests with a wrong signature.
type awsServer struct {
	*httptest.Server
	t        *testing.T
	response http.HandlerFunc

	mu      sync.Mutex
	invokes []*http.Request // their bodies are read
	bodies  []string
	assumed url.Values
}

// The keys of the node, and those of the role that it may assume.
var (
	nodeKey = aws.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "node-secret"}
	roleKey = aws.Credentials{AccessKeyID: "ASIAIOSFODNN7EXAMPLE", SecretAccessKey: "role-secret", SessionToken: "role-token"}
)

func newAWS(t *testing.T, response http.HandlerFunc) *awsServer {
	t.Helper()
	s := &awsServer{t: t, response: response}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *awsServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key, service := nodeKey, "lambda"
	if strings.Contains(r.Header.Get("Authorization"), roleKey.AccessKeyID) {
		key = roleKey
	}
	if r.URL.Path == "/" {
		service = "sts"
	}
	if err := signed(r, body, key, service); err != nil {
		s.t.Errorf("%s: %v", r.URL, err)
	}
	if service == "sts" {
		s.mu.Lock()
		s.assumed, _ = url.ParseQuery(string(body))
		s.mu.Unlock()
		fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
			<AssumeRoleResult><Credentials>
				<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken>
				<Expiration>2099-01-01T00:00:00Z</Expiration>
			</Credentials></AssumeRoleResult>
			</AssumeRoleResponse>`, roleKey.AccessKeyID, roleKey.SecretAccessKey, roleKey.SessionToken)
		return
	}
	s.mu.Lock()
	s.invokes, s.bodies = append(s.invokes, r), append(s.bodies, string(body))
	s.mu.Unlock()
	s.response(w, r)
}

func (s *awsServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.invokes)
}

// signed signs a received request again and compares the signatures.
func signed(r *http.Request, body []byte, key aws.Credentials, service string) error {
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return fmt.Errorf("X-Amz-Date: %w", err)
	}
	given := r.Header.Get("Authorization")
	_, list, _ := strings.Cut(given, "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(list, ";") {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(body))
	if err := v4.NewSigner().SignHTTP(context.Background(), key, again, hash, service, "eu-central-1", at); err != nil {
		return err
	}
	if want := again.Header.Get("Authorization"); given != want {
		return fmt.Errorf("signature:\ngot  %s\nwant %s", given, want)
	}
	return nil
}

func (s *awsServer) invoker() *invoke.Invoker {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	i := invoke.New(invoke.Options{LoadAWS: func(context.Context) (aws.Config, error) {
		return aws.Config{
			Region: "eu-central-1", BaseEndpoint: aws.String(s.URL), HTTPClient: client,
			Credentials: credentials.StaticCredentialsProvider{Value: nodeKey},
		}, nil
	}})
	s.t.Cleanup(i.Close)
	return i
}

// invocation returns a call of a function.
func invocation(change func(*target.Lambda)) target.Call {
	call := callTo("", "", 0)
	l := &target.Lambda{Function: "billing:live"}
	l.SetDefaults()
	if change != nil {
		change(l)
	}
	call.Target = target.Target{Lambda: l}
	call.Payload = json.RawMessage(`{"n":1}`)
	call.Bounds = &target.Bounds{Lambda: target.LambdaBounds{Functions: []string{"*"}, Roles: []string{"*"}}}
	call.AWSExternalID = "ext-1"
	return call
}

func TestFunctionIsInvokedOnceAndItsResultKept(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Executed-Version", "7")
		w.Header().Set("X-Amzn-Requestid", "req-1")
		w.Header().Set("X-Amz-Log-Result",
			base64.StdEncoding.EncodeToString([]byte("START\npassword=hunter2 AKIAIOSFODNN7EXAMPLE\nEND\n")))
		fmt.Fprint(w, `{"done":true}`)
	})
	call := invocation(func(l *target.Lambda) { l.ClientContext = json.RawMessage(`{"custom":{"a":"b"}}`) })
	o := s.invoker().Invoke(t.Context(), call)
	if o.Response.Phases.FirstByte <= 0 || o.Response.Phases.LastByte < o.Response.Phases.FirstByte {
		t.Errorf("phases = %+v, want when the first and the last byte came", o.Response.Phases)
	}
	want := &run.Response{
		Phases: o.Response.Phases, RequestID: "req-1", Body: `{"done":true}`, ExecutedVersion: "7",
		LogTail: "START\npassword=*** ***\nEND\n",
	}
	if o.State != run.Succeeded || o.HTTPStatus != 200 || s.count() != 1 {
		t.Errorf("outcome = %+v after %d invocations, want success after 1", o, s.count())
	}
	if diff := cmp.Diff(want, o.Response); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	r := s.invokes[0]
	if r.URL.Path != "/2015-03-31/functions/billing:live/invocations" ||
		r.Header.Get("X-Amz-Invocation-Type") != "RequestResponse" || r.Header.Get("X-Amz-Log-Type") != "Tail" {
		t.Errorf("request = %s with %v", r.URL.Path, r.Header)
	}
	if text, _ := base64.StdEncoding.DecodeString(r.Header.Get("X-Amz-Client-Context")); string(text) != `{"custom":{"a":"b"}}` {
		t.Errorf("client context = %s", text)
	}
	var event struct {
		Carillon struct {
			EventID string `json:"event_id"`
			Attempt int
			Fence   int64
		}
		Payload struct{ N int }
	}
	err := json.Unmarshal([]byte(s.bodies[0]), &event)
	if err != nil || event.Carillon.EventID != "evt_1" || event.Carillon.Attempt != 2 ||
		event.Carillon.Fence != call.Fence() || event.Payload.N != 1 {
		t.Errorf("event = %s, %v", s.bodies[0], err)
	}
}

func TestEventInvocationSucceedsWhenAccepted(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	o := s.invoker().Invoke(t.Context(), invocation(func(l *target.Lambda) { l.Invocation = target.InvokeEvent }))
	if o.State != run.Succeeded || o.HTTPStatus != 202 ||
		s.invokes[0].Header.Get("X-Amz-Invocation-Type") != "Event" ||
		s.invokes[0].Header.Get("X-Amz-Log-Type") != "" {
		t.Errorf("outcome = %+v of %v, want it accepted", o, s.invokes[0].Header)
	}
}

func TestFunctionIsInvokedAsARole(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(http.ResponseWriter, *http.Request) {})
	i := s.invoker()
	call := invocation(func(l *target.Lambda) {
		l.Function = "arn:aws:lambda:eu-central-1:123456789012:function:billing"
		l.AssumeRole = &target.AssumeRole{
			RoleARN: "arn:aws:iam::123456789012:role/caller", SessionTags: map[string]string{"team": "crm"},
		}
	})
	for range 2 {
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Fatalf("outcome = %+v, want success", o)
		}
	}
	if s.assumed.Get("RoleArn") != "arn:aws:iam::123456789012:role/caller" || s.assumed.Get("ExternalId") != "ext-1" ||
		s.assumed.Get("Tags.member.3.Key") != "team" || s.assumed.Get("Tags.member.3.Value") != "crm" {
		t.Errorf("role was asked for with %v", s.assumed)
	}
	if got := s.invokes[0].Header.Get("X-Amz-Security-Token"); got != roleKey.SessionToken || s.count() != 2 {
		t.Errorf("token %q in %d invocations, want that of the role in 2", got, s.count())
	}
}

// refuseWith responds with an error of the API.
func refuseWith(status int, code string, more map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amzn-Errortype", code)
		w.Header().Set("X-Amzn-Requestid", "req-9")
		for name, value := range more {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		reason := ""
		if status == 429 {
			reason = `,"Reason":"` + more["Reason"] + `"`
		}
		fmt.Fprintf(w, `{"Type":"User","message":"refused"%s}`, reason)
	}
}

// failWith responds with the result of a failed function.
func failWith(kind, payload string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Function-Error", kind)
		fmt.Fprint(w, payload)
	}
}

func TestErrorsOfLambdaHaveTheirClassAfterOneInvoke(t *testing.T) {
	t.Parallel()
	const (
		config, credential, serverErr = run.ClassConfig, run.ClassCredentials, run.ClassHTTP5xx
		function, functionTime        = run.ClassFunctionError, run.ClassFunctionTime
	)
	type expectation struct {
		response http.HandlerFunc
		state    run.State
		class    run.Class
		says     string
	}
	tests := map[string]expectation{
		"no error code": {refuseWith(502, "", nil), failed, serverErr, ""},
		"handled": {
			failWith("Handled", `{"errorType":"Bad","errorMessage":"no such invoice"}`),
			failed, function, "Handled): Bad: no such invoice",
		},
		"unhandled": {
			failWith("Unhandled", `{"errorMessage":"boom","errorType":"panic"}`),
			failed, function, "Unhandled): panic: boom",
		},
		"unhandled, no JSON": {failWith("Unhandled", `segfault`), failed, function, "segfault"},
		"function timeout": {
			failWith("Unhandled", `{"errorMessage":"2026-05-01T10:00:03Z req Task timed out after 3.00 seconds"}`),
			timedOut, functionTime, "timed out",
		},
		"function timeout, by type": {
			failWith("Unhandled",
				`{"errorType":"Sandbox.Timedout","errorMessage":"RequestId: x Error: Task timed out after 3.00 seconds"}`),
			timedOut, functionTime, "timed out",
		},
		"connection cut, result unknown": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			run.Lost, run.ClassReset, "",
		},
		"no response in time": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, timedOut, run.ClassTimeout, "",
		},
		"redirect": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/")
				w.WriteHeader(400)
			}, failed, config, "",
		},
	}
	for _, reason := range []string{
		"FunctionInvocationRateLimitExceeded", "ConcurrentInvocationLimitExceeded", "CallerRateLimitExceeded",
		"ReservedFunctionConcurrentInvocationLimitExceeded", "ReservedFunctionInvocationRateLimitExceeded",
		"ConcurrentSnapshotCreateLimitExceeded",
	} {
		tests["throttle: "+reason] = expectation{
			refuseWith(429, "TooManyRequestsException", map[string]string{"Reason": reason, "Retry-After": "7"}),
			failed, run.ClassThrottled, reason,
		}
	}
	for code, refusal := range map[string]struct {
		status int
		class  run.Class
	}{
		"ServiceException":                     {500, serverErr},
		"RequestTooLargeException":             {413, config},
		"ResourceNotFoundException":            {404, config},
		"AccessDeniedException":                {403, config},
		"InvalidRequestContentException":       {400, config},
		"KMSAccessDeniedException":             {502, config},
		"KMSDisabledException":                 {502, config},
		"KMSNotFoundException":                 {502, config},
		"InvalidSubnetIDException":             {502, config},
		"EC2AccessDeniedException":             {502, config},
		"ENILimitReachedException":             {502, serverErr},
		"SubnetIPAddressLimitReachedException": {502, serverErr},
		"ResourceConflictException":            {409, serverErr}, // the function is being created
		"ExpiredTokenException":                {403, credential},
		"UnrecognizedClientException":          {403, credential},
	} {
		tests[code] = expectation{refuseWith(refusal.status, code, nil), failed, refusal.class, code}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAWS(t, tt.response)
			timeout := ample
			if tt.state == timedOut {
				timeout = brokenTimeout
			}
			call := invocation(func(l *target.Lambda) { l.Timeout = input.Duration(timeout) })
			o := s.invoker().Invoke(t.Context(), call)
			if o.State != tt.state || o.Class != tt.class || !strings.Contains(o.Error, tt.says) || s.count() != 1 {
				t.Errorf("outcome = %+v after %d invocations, want %s %s saying %q after 1",
					o, s.count(), tt.state, tt.class, tt.says)
			}
			if o.Class == run.ClassThrottled && (o.RetryAfter == nil || *o.RetryAfter != 7*time.Second) {
				t.Errorf("retry after %v, want 7s", o.RetryAfter)
			}
		})
	}
}

// A result of Lambda has at most 6 MB, but an emulator may return more.
func TestLongResultsAreReadUpToTheKeptSize(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]http.Header{"a result": {}, "an error": {"X-Amz-Function-Error": {"Unhandled"}}} {
		var written atomic.Int64
		s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), head)
			chunk := bytes.Repeat([]byte("é"), 1<<15)
			for n := 0; n < gigabyte; n += len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
				written.Add(int64(len(chunk)))
			}
		})
		o := s.invoker().Invoke(t.Context(), invocation(nil))
		if (o.State == run.Succeeded) != (len(head) == 0) || o.Response == nil ||
			!o.Response.BodyTruncated || len(o.Response.Body) > 64<<10 || s.count() != 1 {
			t.Errorf("%s: outcome = %s %s after %d invocations, want a truncated body after 1",
				name, o.State, o.Class, s.count())
		}
		s.Close() // waits for the end of the response
		if got := written.Load(); got > 64<<20 {
			t.Errorf("%s: the server could write %d bytes", name, got)
		}
	}
}

// overlapping is an HTTP client whose request is written until after its response has begun, as net/http may write it.
type overlapping struct{}

func (overlapping) Do(r *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength))
	body := r.Body
	answer := io.NopCloser(readerFunc(func(p []byte) (int, error) {
		if _, err := io.Copy(io.Discard, body); err != nil {
			return 0, err // net/http closes the connection
		}
		n := copy(p, sent)
		sent = nil
		return n, map[bool]error{n == 0: io.EOF}[true]
	}))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: answer}, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestResponseThatBeginsBeforeTheRequestEndsIsRead(t *testing.T) {
	t.Parallel()
	i := invoke.New(invoke.Options{LoadAWS: func(context.Context) (aws.Config, error) {
		return aws.Config{
			Region: "eu-central-1", HTTPClient: overlapping{}, Credentials: credentials.StaticCredentialsProvider{Value: nodeKey},
		}, nil
	}})
	defer i.Close()
	if o := i.Invoke(t.Context(), invocation(nil)); o.State != run.Succeeded || o.Response == nil || o.Response.Body == "" {
		t.Errorf("outcome = %s %s: %s, want the response", o.State, o.Class, o.Error)
	}
}

// The result of an invocation is unknown if its kept connection breaks.
func TestInvocationIsSentOnceIfTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, `{}`)
	})
	i := s.invoker()
	for attempt := 1; attempt <= 6; attempt++ {
		want := run.Succeeded
		if attempt%2 == 0 {
			want = run.Lost
		}
		if o := i.Invoke(t.Context(), invocation(nil)); o.State != want || s.count() != attempt {
			t.Errorf("attempt %d: outcome = %+v after %d invocations, want %s", attempt, o, s.count(), want)
		}
	}
}

func TestNodeWithoutCredentialsSendsNothing(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(http.ResponseWriter, *http.Request) {})
	for name, given := range map[string]aws.CredentialsProvider{
		"none": nil,
		"not to be had": aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, fmt.Errorf("no EC2 IMDS role found")
		}),
	} {
		i := invoke.New(invoke.Options{LoadAWS: func(context.Context) (aws.Config, error) {
			return aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(s.URL), Credentials: given}, nil
		}})
		defer i.Close()
		if o := i.Invoke(t.Context(), invocation(nil)); o.Class != run.ClassCredentials ||
			o.State != run.Failed || s.count() != 0 {
			t.Errorf("%s: outcome = %+v after %d invocations, want credentials and none", name, o, s.count())
		}
	}
}

// A panic in an attempt ends the attempt, not the node.
func TestPanicInAnAttemptBecomesItsOutcome(t *testing.T) {
	t.Parallel()
	i := invoke.New(invoke.Options{LoadAWS: func(context.Context) (aws.Config, error) { panic("no such thing") }})
	defer i.Close()
	if o := i.Invoke(t.Context(), invocation(nil)); o.State != run.Failed ||
		o.Class != run.ClassPanic || o.Error != "panic: no such thing" || o.EndedAt.IsZero() {
		t.Errorf("outcome = %+v, want a failure of class panic", o)
	}
}

// The environment of the node sets the endpoint, as for any program that uses the SDK.
func TestEndpointFromTheEnvironmentIsUsed(t *testing.T) {
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `"emulated"`) })
	t.Setenv("AWS_ENDPOINT_URL_LAMBDA", s.URL)
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", nodeKey.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", nodeKey.SecretAccessKey)
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	i := newInvoker(t)
	if o := i.Invoke(t.Context(), invocation(nil)); o.State != run.Succeeded ||
		o.Response.Body != `"emulated"` || s.count() != 1 {
		t.Errorf("outcome = %+v after %d invocations, want success", o, s.count())
	}
}
