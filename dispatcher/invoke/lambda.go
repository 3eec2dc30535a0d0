package invoke

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"github.com/carillon-dev/carillon/dispatcher"
)

// call invokes the function once.
func (f *functions) call(ctx context.Context, call dispatcher.Call, started time.Time) dispatcher.Outcome {
	l := call.Target.Lambda
	bounded, cancel := context.WithTimeout(ctx, l.Timeout.Std())
	defer cancel()
	if err := call.Bounds.CheckJob(dispatcher.Job{App: call.App, Target: call.Target}); err != nil {
		return outsideBounds(err)
	}
	client, err := f.client(bounded, call, started)
	if err != nil {
		return failed(dispatcher.ClassCredentials, err.Error())
	}
	credentials, err := client.Options().Credentials.Retrieve(bounded)
	if err != nil {
		if bounded.Err() != nil {
			return classify(ctx, bounded, err, l.Timeout)
		}
		return failed(credentialsClass(err), "AWS credentials of the node: "+err.Error())
	}
	event, err := call.FunctionEvent()
	if err != nil {
		return failed(dispatcher.ClassOther, err.Error())
	}
	input := &lambda.InvokeInput{
		FunctionName: aws.String(l.Function), InvocationType: types.InvocationType(l.Invocation), Payload: event,
	}
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
		outcome = notInvoked(ctx, bounded, err, l.Timeout)
	} else {
		outcome = invoked(output)
	}
	clean := newRedaction([]string{credentials.SecretAccessKey, credentials.SessionToken})
	outcome.Error = clean.clean(outcome.Error)
	if r := outcome.Response; r != nil {
		r.Phases = watch.seen(err == nil)
		r.Body, r.LogTail = clean.cleanCut(r.Body), clean.clean(r.LogTail)
	}
	return outcome
}

// invoked turns a response of the Invoke API into an outcome. The API reports a failed function as a
// response, not as an error.
func invoked(output *lambda.InvokeOutput) dispatcher.Outcome {
	response := &dispatcher.Response{
		FunctionError: aws.ToString(output.FunctionError), ExecutedVersion: aws.ToString(output.ExecutedVersion),
		LogTail: logTail(aws.ToString(output.LogResult)),
		Body:    textOf(output.Payload), BodyTruncated: len(output.Payload) > mostResponse,
	}
	response.RequestID, _ = middleware.GetRequestIDMetadata(output.ResultMetadata)
	if response.FunctionError == "" {
		return dispatcher.Outcome{State: dispatcher.RunSucceeded, HTTPStatus: int(output.StatusCode), Response: response}
	}
	// Lambda runtimes use this format by convention. Another payload is shown as it is.
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

// notInvoked turns an error of the Invoke API into an outcome.
func notInvoked(outer, bounded context.Context, err error, timeout dispatcher.Duration) dispatcher.Outcome {
	var api smithy.APIError
	if !errors.As(err, &api) {
		outcome := classify(outer, bounded, err, timeout)
		// Unless the request was certainly not sent, the function may be running.
		if outcome.State == dispatcher.RunFailed && !outcome.Class.NeverSent() && outcome.Class != dispatcher.ClassTLS {
			outcome.State = dispatcher.RunLost
		}
		return outcome
	}
	outcome := failed(dispatcher.ClassOther, api.ErrorCode()+": "+redact(api.ErrorMessage()))
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		outcome.HTTPStatus = response.HTTPStatusCode()
		outcome.Response = &dispatcher.Response{RequestID: response.ServiceRequestID()}
	}
	outcome.Class = apiErrorClass(api.ErrorCode(), outcome.HTTPStatus)
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

// apiErrorClass returns the class of an error of the API from its code and status.
func apiErrorClass(code string, status int) dispatcher.Class {
	switch {
	case status == http.StatusTooManyRequests, code == "ThrottlingException", code == "Throttling":
		return dispatcher.ClassThrottled
	case slices.Contains([]string{
		"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId",
		"InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationTokenException",
		"RequestExpired",
	}, code):
		return dispatcher.ClassCredentials
	case status >= 400 && status <= 499, strings.HasPrefix(code, "KMS"), strings.HasPrefix(code, "Invalid"),
		code == "EC2AccessDeniedException":
		// Status 409 means that the function is being created or updated, so a retry can succeed.
		if status == http.StatusConflict {
			return dispatcher.ClassHTTP5xx
		}
		return dispatcher.ClassConfig
	case status >= 500:
		return dispatcher.ClassHTTP5xx
	}
	return dispatcher.ClassOther
}

// credentialsClass distinguishes a role that may not be assumed, which a retry does not change, from
// credentials that are not available at the moment.
func credentialsClass(err error) dispatcher.Class {
	var api smithy.APIError
	if errors.As(err, &api) && (api.ErrorCode() == "AccessDenied" || api.ErrorCode() == "ValidationError") {
		return dispatcher.ClassConfig
	}
	return dispatcher.ClassCredentials
}

// textOf returns the part of a body that is kept, as valid UTF-8.
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
