// Package aws makes the attempts on AWS services: it invokes Lambda functions, sends messages to SQS queues and
// publishes messages to SNS topics, with the identity of the node or a role.
package aws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// attempt makes an attempt that is one request to a service of AWS, within the bounds of the app, with the identity of
// the call and within timeout. send makes the request, and returns its outcome and the state in the response.
func (a *clients[C]) attempt(
	ctx context.Context, call target.Call, started time.Time, timeout input.Duration,
	send func(ctx context.Context, client C) (run.Outcome, attempt.ReturnedState, error),
) run.Outcome {
	bounded, cancel := context.WithTimeout(ctx, timeout.Std())
	defer cancel()
	if err := call.Bounds.CheckTarget(call.App, call.Target); err != nil {
		return attempt.NotAttempted(attempt.OutOfBounds(err))
	}
	client, err := a.client(bounded, call)
	if err != nil {
		return failed(run.ClassCredentials, "", err)
	}
	credentials, err := client.credentials.Retrieve(bounded)
	if err != nil {
		if bounded.Err() != nil {
			return attempt.Classify(ctx, bounded, err, timeout)
		}
		return failed(credentialsClass(err), "AWS credentials of the node: ", err)
	}
	if call.Held != nil && !call.Held() {
		return attempt.NotHeld()
	}
	watch := &attempt.Stopwatch{Start: started}
	outcome, state, err := send(httptrace.WithClientTrace(bounded, watch.Trace()), client.service)
	if err != nil {
		outcome = refused(ctx, bounded, err, timeout)
	}
	secrets := []string{credentials.SecretAccessKey, credentials.SessionToken}
	if call.Callback != nil {
		secrets = append(secrets, call.Callback.Token)
	}
	clean := attempt.NewRedaction(secrets)
	outcome.Error = clean.Clean(outcome.Error)
	if r := outcome.Response; r != nil {
		r.Phases = watch.Seen(err == nil)
		r.Body, r.LogTail = clean.CleanCut(r.Body), clean.Clean(r.LogTail)
		r.RequestID, r.MessageID = clean.Clean(r.RequestID), clean.Clean(r.MessageID)
	}
	attempt.KeepState(&outcome, call, state, clean)
	return outcome
}

// failed returns the outcome of an error, with its subject before it, without the addresses of AWS in the network of the node.
func failed(class run.Class, about string, err error) run.Outcome {
	text, addresses := target.HideAddresses(err.Error(), netip.Addr{})
	return attempt.FailedAt(class, about+text, addresses)
}

// refused turns the error of a request into an outcome.
func refused(outer, bounded context.Context, err error, timeout input.Duration) run.Outcome {
	var response *awshttp.ResponseError
	status := 0
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	var api smithy.APIError
	switch {
	case errors.As(err, &api):
	case status >= http.StatusBadRequest && bounded.Err() == nil: // by a proxy, or cut off
		outcome := failed(apiErrorClass("", status), "the response is no error of AWS: ", err)
		outcome.HTTPStatus = status
		return outcome
	default:
		outcome := attempt.Classify(outer, bounded, err, timeout)
		// Unless the request was certainly not sent, the function may be running, or the message may have been taken.
		if outcome.State == run.Failed && !outcome.Class.NeverSent() && outcome.Class != run.ClassTLS {
			outcome.State = run.Lost
		}
		return outcome
	}
	outcome := attempt.Failed(apiErrorClass(api.ErrorCode(), status), api.ErrorCode()+": "+attempt.Redact(api.ErrorMessage()))
	if response != nil {
		outcome.HTTPStatus, outcome.Response = status, &run.Response{RequestID: response.ServiceRequestID()}
	}
	if throttle, is := errors.AsType[*types.TooManyRequestsException](err); is {
		outcome.Class = run.ClassThrottled
		outcome.Error = string(throttle.Reason) + ": " + throttle.ErrorMessage()
		if seconds, err := strconv.Atoi(aws.ToString(throttle.RetryAfterSeconds)); err == nil && seconds >= 0 {
			wait := time.Duration(min(seconds, 1e9)) * time.Second
			outcome.RetryAfter = &wait
		}
	}
	return outcome
}

func apiErrorClass(code string, status int) run.Class {
	switch {
	case status == http.StatusTooManyRequests, slices.Contains([]string{
		"ThrottlingException", "Throttling", "Throttled", "ThrottledException", "RequestThrottled", "KMSThrottling",
		"KmsThrottled", "KMS.ThrottlingException",
	}, code):
		return run.ClassThrottled
	case slices.Contains([]string{
		"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId",
		"InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationTokenException",
		"MissingAuthenticationToken", "RequestExpired",
	}, code):
		return run.ClassCredentials
	case status >= 400 && status <= 499, strings.HasPrefix(code, "KMS"), strings.HasPrefix(code, "Invalid"),
		code == "EC2AccessDeniedException":
		// Status 409 means that the function is being created or updated, so a retry can succeed.
		if status == http.StatusConflict {
			return run.ClassHTTP5xx
		}
		return run.ClassConfig
	case status >= 500:
		return run.ClassHTTP5xx
	}
	return run.ClassOther
}

// credentialsClass distinguishes a role that may not be assumed, which a retry does not change, from credentials that are missing now.
func credentialsClass(err error) run.Class {
	if api, is := errors.AsType[smithy.APIError](err); is && (api.ErrorCode() == "AccessDenied" || api.ErrorCode() == "ValidationError") {
		return run.ClassConfig
	}
	return run.ClassCredentials
}

// clients keeps the clients of one AWS service. They use the HTTP client of the SDK, without the egress guard: the
// operator chooses the endpoint (AWS_ENDPOINT_URL_LAMBDA, AWS_ENDPOINT_URL_SQS), and credentials come from link-local
// addresses that webhooks may not call. A job only chooses a region, which has a fixed format.
type clients[C any] struct {
	node *identity.Node
	// open returns the function that calls the service with one client. A type that holds the client itself would make
	// the linker keep all of its operations, 2 MB of code.
	open    func(aws.Config) C
	clients *cache.Cache[clientKey, *client[C]]
}

// clientKey identifies a client. Clients of the node itself have only a region: they have nothing from an app.
type clientKey struct{ region, role, externalID, app, job, tags string }

// client is a client, and the credentials that it uses.
type client[C any] struct {
	service     C
	credentials aws.CredentialsProvider
}

// mostClients bounds the clients of a service that are kept. One takes some kilobytes; a role is assumed again when it is used again.
const mostClients = 1000

func newClients[C any](node *identity.Node, open func(aws.Config) C) *clients[C] {
	return &clients[C]{node: node, open: open, clients: cache.New[clientKey, *client[C]](mostClients)}
}

// client returns the client for the region and the role of a call.
func (a *clients[C]) client(ctx context.Context, call target.Call) (*client[C], error) {
	key := clientKey{region: call.Target.AWSRegion()}
	if role := call.Target.AssumeRole(); role != nil {
		if call.AWSExternalID == "" {
			return nil, fmt.Errorf("app %s has no external id, so no role is assumed for it", call.App)
		}
		tags, err := json.Marshal(role.SessionTags)
		if err != nil {
			return nil, err
		}
		key = clientKey{key.region, role.RoleARN, call.AWSExternalID, call.App, call.Job, string(tags)}
	}
	if c, known := a.clients.Get(key); known {
		return c, nil
	}
	made, err := a.newClient(ctx, call, key.region)
	if err != nil {
		return nil, err
	}
	if c, known := a.clients.Get(key); known { // another attempt made it meanwhile
		return c, nil
	}
	a.clients.Put(key, made)
	return made, nil
}

func (a *clients[C]) newClient(ctx context.Context, call target.Call, region string) (*client[C], error) {
	loaded, err := a.node.Config(ctx)
	if err != nil {
		return nil, err
	}
	if region != "" {
		loaded.Region = region
	}
	if loaded.Region == "" {
		return nil, errors.New("neither the target nor the node names a region; set region, or AWS_REGION on the node")
	}
	loaded.HTTPClient = boundedClient{cmp.Or[aws.HTTPClient](loaded.HTTPClient, awshttp.NewBuildableClient())}
	if call.Target.AssumeRole() != nil {
		loaded.Credentials = aws.NewCredentialsCache(assumeForCall(loaded, call))
	}
	if loaded.Credentials == nil {
		return nil, errors.New("the node has no AWS credentials") // the SDK would send the request unsigned
	}
	// Each attempt is one request: the engine retries, not the SDK.
	loaded.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return &client[C]{service: a.open(loaded), credentials: loaded.Credentials}, nil
}

// boundedClient cuts responses to the size that is kept. The SDK alone would read the whole response into memory, 6 MB
// for each of hundreds of attempts. It hides WriteTo of requests: the SDK closes a body when the response begins, and its
// WriteTo then returns io.EOF, at which net/http closes the connection, so that the response, and the outcome, may be lost.
type boundedClient struct{ aws.HTTPClient }

func (c boundedClient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	response, err := c.HTTPClient.Do(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, attempt.MostBody+1), response.Body}
	}
	return response, err
}

// assumeForCall assumes the role of a call with the identity of its app and job.
func assumeForCall(node aws.Config, call target.Call) aws.CredentialsProvider {
	role := *call.Target.AssumeRole()
	tags := maps.Clone(role.SessionTags)
	if tags == nil {
		tags = map[string]string{}
	}
	// Validate refuses other tags with the prefix; these replace them anyway.
	maps.DeleteFunc(tags, func(key, _ string) bool { return target.ReservedSessionTag(key) })
	tags[target.SessionTagApp], tags[target.SessionTagJob] = call.App, call.Job
	return identity.Assume(node, identity.Role{ARN: role.RoleARN, App: call.App, ExternalID: call.AWSExternalID}, tags)
}
