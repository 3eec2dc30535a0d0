package aws

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

type functions struct{ *clients[invokeFunction] }

type invokeFunction func(context.Context, *lambda.InvokeInput) (*lambda.InvokeOutput, error)

// Functions returns the attempts that invoke Lambda functions.
func Functions(node *identity.Node) attempt.Func {
	return functions{newClients(node, func(c aws.Config) invokeFunction {
		client := lambda.NewFromConfig(c)
		return func(ctx context.Context, input *lambda.InvokeInput) (*lambda.InvokeOutput, error) {
			return client.Invoke(ctx, input)
		}
	})}.call
}

func (f functions) call(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	l := call.Target.Lambda
	event, err := call.FunctionEvent()
	if err != nil {
		return attempt.Failed(run.ClassOther, err.Error())
	}
	input := &lambda.InvokeInput{
		FunctionName: aws.String(l.Function), InvocationType: types.InvocationType(l.Invocation), Payload: event,
	}
	if l.Invocation == target.InvokeRequestResponse {
		input.LogType = types.LogTypeTail
		if len(l.ClientContext) > 0 {
			input.ClientContext = aws.String(base64.StdEncoding.EncodeToString(l.ClientContext))
		}
	}
	once := func(ctx context.Context, invoke invokeFunction) (run.Outcome, attempt.ReturnedState, error) {
		output, err := invoke(ctx, input)
		if err != nil {
			return run.Outcome{}, attempt.ReturnedState{}, err
		}
		return invoked(output), attempt.ReturnedState{Text: run.StateInBody(output.Payload)}, nil
	}
	return f.attempt(ctx, call, started, l.Timeout, once)
}

// invoked turns a response of the Invoke API into an outcome. The API reports a failed function as a
// response, not as an error.
func invoked(output *lambda.InvokeOutput) run.Outcome {
	response := &run.Response{
		FunctionError: aws.ToString(output.FunctionError), ExecutedVersion: aws.ToString(output.ExecutedVersion),
		LogTail: logTail(aws.ToString(output.LogResult)),
		Body:    attempt.Text(output.Payload), BodyTruncated: len(output.Payload) > attempt.MostBody,
	}
	response.RequestID, _ = middleware.GetRequestIDMetadata(output.ResultMetadata)
	if response.FunctionError == "" {
		outcome := run.Outcome{State: run.Succeeded}
		if run.IsSuperseded(run.OutcomeInBody(output.Payload)) {
			outcome = run.SupersededOutcome()
		}
		outcome.HTTPStatus, outcome.Response = int(output.StatusCode), response
		return outcome
	}
	// Lambda runtimes use this format by convention. Another payload is shown as it is.
	var said struct{ ErrorType, ErrorMessage string }
	message := response.Body
	if json.Unmarshal(output.Payload, &said) == nil && said.ErrorMessage != "" {
		message = strings.TrimPrefix(said.ErrorType+": "+said.ErrorMessage, ": ")
	}
	outcome := attempt.Failed(run.ClassFunctionError, "the function failed ("+response.FunctionError+"): "+attempt.Redact(message))
	if supersededError.MatchString(said.ErrorType) {
		outcome = run.SupersededOutcome()
	}
	if said.ErrorType == "Sandbox.Timedout" || strings.Contains(said.ErrorMessage, "Task timed out after") {
		outcome.State, outcome.Class = run.TimedOut, run.ClassFunctionTime
	}
	outcome.HTTPStatus, outcome.Response = int(output.StatusCode), response
	return outcome
}

// supersededError matches the type of the error by which a function refuses an event as stale, as the runtimes write
// it: Superseded, com.example.Superseded of Java, or Function<Superseded> of Ruby.
var supersededError = regexp.MustCompile(`^([\w.]+\.)?Superseded$|^Function<([\w:]+::)?Superseded>$`)

// logTail decodes the end of a function's log.
func logTail(encoded string) string {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	return attempt.Redact(attempt.Text(text))
}
