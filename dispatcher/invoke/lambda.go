package invoke

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"

	"github.com/carillon-dev/carillon/dispatcher"
)

// functions invokes Lambda functions. It has the SDK's own HTTP client: where that goes is the
// operator's to say (AWS_ENDPOINT_URL_LAMBDA), and credentials come from link-local addresses that
// no webhook may reach. A job says no more than a region, which is of a fixed form.
type functions struct {
	load func(context.Context) (aws.Config, error)

	mu      sync.Mutex
	clients map[string]*lambda.Client // by region and role
}

func newFunctions(load func(context.Context) (aws.Config, error)) *functions {
	return &functions{load: load, clients: map[string]*lambda.Client{}}
}

// loadAWS reads the node's configuration: environment, files, and the credentials of its machine.
// Connections are kept alive more often than the 350 s after which NAT gateways forget them.
func loadAWS(ctx context.Context) (aws.Config, error) {
	client := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout, d.KeepAlive = connectTimeout, 15*time.Second
	})
	loaded, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client))
	if err != nil {
		return loaded, err
	}
	// The SDK's client with what it has made of the environment, but one that follows no redirect
	// (that would be a second request), and whose connections can be closed.
	if made, ok := loaded.HTTPClient.(*awshttp.BuildableClient); ok {
		loaded.HTTPClient = &http.Client{
			Transport:     made.GetTransport(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return loaded, nil
}

// client returns the client for the region and role of a target.
func (f *functions) client(ctx context.Context, l *dispatcher.Lambda) (*lambda.Client, error) {
	region := l.FunctionRegion()
	role, err := json.Marshal(l.AssumeRole)
	if err != nil {
		return nil, err
	}
	key := region + " " + string(role)
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.clients[key]; ok {
		return c, nil
	}
	loaded, err := f.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration of the node: %w", err)
	}
	if region != "" {
		loaded.Region = region
	}
	if loaded.Region == "" {
		return nil, errors.New("neither the target nor the node names a region; set region, or AWS_REGION on the node")
	}
	if l.AssumeRole != nil {
		loaded.Credentials = aws.NewCredentialsCache(assume(loaded, *l.AssumeRole))
	}
	if loaded.Credentials == nil {
		return nil, errors.New("the node has no AWS credentials") // the SDK would send the request unsigned
	}
	// One Invoke for each attempt: retries are the dispatcher's.
	c := lambda.NewFromConfig(loaded, func(o *lambda.Options) {
		o.Retryer, o.HTTPClient = aws.NopRetryer{}, boundedClient{o.HTTPClient}
	})
	f.clients[key] = c
	return c, nil
}

// boundedClient gives the SDK as much of a response as is kept; of its own accord the SDK reads all of
// it into memory, 6 MB for each of hundreds of attempts.
type boundedClient struct{ lambda.HTTPClient }

// Do makes a request.
func (c boundedClient) Do(r *http.Request) (*http.Response, error) {
	response, err := c.HTTPClient.Do(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, mostResponse+1), response.Body}
	}
	return response, err
}

// CloseIdleConnections closes those of the client within, if it has any.
func (c boundedClient) CloseIdleConnections() {
	if client, ok := c.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		client.CloseIdleConnections()
	}
}

func assume(node aws.Config, role dispatcher.AssumeRole) aws.CredentialsProvider {
	return stscreds.NewAssumeRoleProvider(sts.NewFromConfig(node), role.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = "carillon"
		if role.ExternalID != "" {
			o.ExternalID = aws.String(role.ExternalID)
		}
		for _, key := range slices.Sorted(maps.Keys(role.SessionTags)) {
			o.Tags = append(o.Tags, ststypes.Tag{Key: aws.String(key), Value: aws.String(role.SessionTags[key])})
		}
	})
}

// close closes idle connections.
func (f *functions) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		if client, ok := c.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
			client.CloseIdleConnections()
		}
	}
}

func (f *functions) call(ctx context.Context, call dispatcher.Call, started time.Time) dispatcher.Outcome {
	l := call.Target.Lambda
	bounded, cancel := context.WithTimeout(ctx, l.Timeout.Std())
	defer cancel()
	client, err := f.client(bounded, l)
	if err != nil {
		return failed(dispatcher.ClassCredentials, err.Error())
	}
	if _, err := client.Options().Credentials.Retrieve(bounded); err != nil {
		if bounded.Err() != nil {
			return classify(ctx, bounded, err, l.Timeout)
		}
		return failed(credentialsClass(err), "credentials of the node: "+err.Error())
	}
	event, err := call.FunctionEvent()
	if err != nil {
		return failed(dispatcher.ClassOther, err.Error())
	}
	input := &lambda.InvokeInput{FunctionName: aws.String(l.Function), InvocationType: types.InvocationType(l.Invocation), Payload: event}
	if l.Invocation == dispatcher.InvokeRequestResponse {
		input.LogType = types.LogTypeTail
		if len(l.ClientContext) > 0 {
			input.ClientContext = aws.String(base64.StdEncoding.EncodeToString(l.ClientContext))
		}
	}
	watch := &stopwatch{start: started}
	output, err := client.Invoke(httptrace.WithClientTrace(bounded, watch.trace()), input)
	var outcome dispatcher.Outcome
	if err != nil {
		outcome = refused(ctx, bounded, err, l.Timeout)
	} else {
		outcome = invoked(output)
	}
	if outcome.Response != nil {
		outcome.Response.Phases = watch.seen(err == nil)
	}
	return outcome
}

// invoked judges a response of the Invoke API. That a function failed is no error of the API.
func invoked(output *lambda.InvokeOutput) dispatcher.Outcome {
	response := &dispatcher.Response{
		FunctionError: aws.ToString(output.FunctionError), ExecutedVersion: aws.ToString(output.ExecutedVersion),
		LogTail: logTail(aws.ToString(output.LogResult)), Body: textOf(output.Payload), BodyTruncated: len(output.Payload) > mostResponse,
	}
	response.RequestID, _ = middleware.GetRequestIDMetadata(output.ResultMetadata)
	if response.FunctionError == "" {
		return dispatcher.Outcome{State: dispatcher.RunSucceeded, HTTPStatus: int(output.StatusCode), Response: response}
	}
	// By the runtimes' convention; a payload of another form is shown as it is.
	var said struct{ ErrorType, ErrorMessage string }
	message := response.Body
	if json.Unmarshal(output.Payload, &said) == nil && said.ErrorMessage != "" {
		message = strings.TrimPrefix(said.ErrorType+": "+said.ErrorMessage, ": ")
	}
	outcome := failed(dispatcher.ClassFunctionError, "the function failed ("+response.FunctionError+"): "+redact(message))
	if said.ErrorType == "Sandbox.Timedout" || strings.Contains(said.ErrorMessage, "Task timed out after") {
		outcome.State, outcome.Class = dispatcher.RunTimedOut, dispatcher.ClassFunctionTime
	}
	outcome.HTTPStatus, outcome.Response = int(output.StatusCode), response
	return outcome
}

// refused judges an Invoke that had no result.
func refused(outer, bounded context.Context, err error, timeout dispatcher.Duration) dispatcher.Outcome {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return unknown(outer, bounded, err, timeout)
	}
	outcome := failed(dispatcher.ClassOther, api.ErrorCode()+": "+redact(api.ErrorMessage()))
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		outcome.HTTPStatus = response.HTTPStatusCode()
		outcome.Response = &dispatcher.Response{RequestID: response.ServiceRequestID()}
	}
	outcome.Class = refusal(api.ErrorCode(), outcome.HTTPStatus)
	var throttle *types.TooManyRequestsException
	if errors.As(err, &throttle) {
		outcome.Class = dispatcher.ClassThrottled
		outcome.Error = string(throttle.Reason) + ": " + throttle.ErrorMessage()
		if seconds, err := strconv.Atoi(aws.ToString(throttle.RetryAfterSeconds)); err == nil && seconds >= 0 {
			wait := time.Duration(min(seconds, 1e9)) * time.Second
			outcome.RetryAfter = &wait
		}
	}
	return outcome
}

// unknown judges an Invoke without a response. Unless the request cannot have been sent, nobody can
// say whether the function runs.
func unknown(outer, bounded context.Context, err error, timeout dispatcher.Duration) dispatcher.Outcome {
	outcome := classify(outer, bounded, err, timeout)
	if outcome.State == dispatcher.RunFailed && !outcome.Class.NeverSent() && outcome.Class != dispatcher.ClassTLS {
		outcome.State = dispatcher.RunLost
	}
	return outcome
}

// refusal returns the class of an error of the API by its code and status.
func refusal(code string, status int) dispatcher.Class {
	switch {
	case status == http.StatusTooManyRequests, code == "ThrottlingException", code == "Throttling":
		return dispatcher.ClassThrottled
	case slices.Contains([]string{
		"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException",
		"SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationTokenException", "RequestExpired",
	}, code):
		return dispatcher.ClassCredentials
	case status >= 400 && status <= 499, strings.HasPrefix(code, "KMS"), strings.HasPrefix(code, "Invalid"), code == "EC2AccessDeniedException":
		// A resource that is in the making is answered with 409.
		if status == http.StatusConflict {
			return dispatcher.ClassHTTP5xx
		}
		return dispatcher.ClassConfig
	case status >= 500:
		return dispatcher.ClassHTTP5xx
	}
	return dispatcher.ClassOther
}

// credentialsClass tells a role that may not be assumed, which the next attempt will not change,
// from credentials that cannot be had just now.
func credentialsClass(err error) dispatcher.Class {
	var api smithy.APIError
	if errors.As(err, &api) && (api.ErrorCode() == "AccessDenied" || api.ErrorCode() == "ValidationError") {
		return dispatcher.ClassConfig
	}
	return dispatcher.ClassCredentials
}

// textOf returns what is kept of a body.
func textOf(body []byte) string {
	return strings.ToValidUTF8(string(body[:min(len(body), mostResponse)]), "\uFFFD")
}

// logTail decodes the end of a function's log.
func logTail(encoded string) string {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	return redact(textOf(text))
}

// What looks like a secret: the ids of AWS's access keys, bearer tokens, and values by their names.
var (
	accessKey   = regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	secretValue = regexp.MustCompile(`(?i)((?:password|passwd|secret|token|authorization|api[_-]?key|credential|private[_-]?key)[a-z_-]*["']?\s*[:=]\s*["']?)[^\s"',;}]+`)
)

// redact hides what looks like a secret: functions log what they should not.
func redact(text string) string {
	text = accessKey.ReplaceAllString(text, "***")
	text = bearer.ReplaceAllString(text, "$1 ***")
	return secretValue.ReplaceAllString(text, "$1***")
}
