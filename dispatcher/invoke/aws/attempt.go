// Package aws makes the attempts of what AWS serves: it invokes Lambda functions, sends messages to SQS queues and publishes
// messages to SNS topics, with the identity of the node or a role.
package aws

import (
	"context"
	"errors"
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

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// attempt makes an attempt that is one request to a service of AWS, within the bounds of the app, with the identity of the
// call and within timeout. send makes the request, and returns the outcome of its response and what that returns as the state.
func (a *clients[C]) attempt(
	ctx context.Context, call target.Call, started time.Time, timeout input.Duration,
	send func(ctx context.Context, client C) (run.Outcome, attempt.ReturnedState, error),
) run.Outcome {
	bounded, cancel := context.WithTimeout(ctx, timeout.Std())
	defer cancel()
	if err := call.Bounds.CheckTarget(call.App, call.Target); err != nil {
		return attempt.NotAttempted(attempt.OutOfBounds(err))
	}
	client, err := a.client(bounded, call, started)
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

// failed returns the outcome of an error, with what it is about before it, without the addresses of AWS in the network of
// the node.
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
	var throttle *types.TooManyRequestsException
	if errors.As(err, &throttle) {
		outcome.Class = run.ClassThrottled
		outcome.Error = string(throttle.Reason) + ": " + throttle.ErrorMessage()
		if seconds, err := strconv.Atoi(aws.ToString(throttle.RetryAfterSeconds)); err == nil && seconds >= 0 {
			wait := time.Duration(min(seconds, 1e9)) * time.Second
			outcome.RetryAfter = &wait
		}
	}
	return outcome
}

// apiErrorClass returns the class of an error of the API from its code and status.
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

// credentialsClass distinguishes a role that may not be assumed, which a retry does not change, from
// credentials that are not available at the moment.
func credentialsClass(err error) run.Class {
	var api smithy.APIError
	if errors.As(err, &api) && (api.ErrorCode() == "AccessDenied" || api.ErrorCode() == "ValidationError") {
		return run.ClassConfig
	}
	return run.ClassCredentials
}
