package secretmanager

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"
)

// mostResponse bounds a response of a manager, in bytes. The largest secret, of Secrets Manager, has 64 KiB, and each
// byte may take six in JSON.
const mostResponse = 512 << 10

// AWS calls services of AWS in a region with the credentials of a configuration.
//
// The SDK's own clients of the three services would add 2.1 MB to a binary of 45.5 MB, for four operations. Their
// retries would not help either: callers pause after a failure, and use the earlier value.
type AWS struct {
	config aws.Config
}

// NewAWS returns clients for services of AWS. config has credentials and an HTTP client; region replaces its region unless
// it is empty.
func NewAWS(config aws.Config, region string) AWS {
	config.Region = cmp.Or(region, config.Region)
	return AWS{config}
}

// awsService is a service with the protocol JSON 1.1.
type awsService struct {
	name     string // for errors
	endpoint string // begins its host name and is its name in signatures
	sdkID    string // its name in configured endpoints
	target   string // begins the names of its operations
}

type awsRequest struct {
	service   awsService
	operation string
	in        any
	signedAt  time.Time
}

// call makes one request and decodes the response. The error is an Error.
func (a AWS) call(ctx context.Context, r awsRequest, out any) error {
	s := r.service
	fail := func(kind Kind, code string) error { return &Error{Kind: kind, Manager: s.name, Code: code} }
	if a.config.Region == "" {
		return fail(NotAsked, "neither the reference nor the node names a region; set AWS_REGION on the node, or use an ARN")
	}
	body, err := json.Marshal(r.in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.endpoint(ctx, s), bytes.NewReader(body))
	if err != nil {
		return fail(NotAsked, "its configured endpoint is not a URL")
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	request.Header.Set("X-Amz-Target", s.target+"."+r.operation)
	if a.config.Credentials == nil {
		return fail(NotAsked, "the node has no AWS credentials")
	}
	credentials, err := a.config.Credentials.Retrieve(ctx)
	if err != nil {
		return credentialsError(s, err)
	}
	sum := sha256.Sum256(body)
	err = v4.NewSigner().SignHTTP(ctx, credentials, request, hex.EncodeToString(sum[:]), s.endpoint, a.config.Region, r.signedAt)
	if err != nil {
		return fail(Unusable, "the request cannot be signed")
	}
	response, err := a.config.HTTPClient.Do(request)
	if err != nil {
		return fail(Unreachable, "no response")
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostResponse+1))
	switch {
	case err != nil:
		return fail(Unreachable, "the response broke off")
	case len(text) > mostResponse:
		return fail(Unusable, "the response is too large")
	case response.StatusCode != http.StatusOK:
		code := awsErrorCode(response, text)
		return fail(awsErrorKind(code, response.StatusCode), code)
	case json.Unmarshal(text, out) != nil:
		return fail(Unreachable, "the response is not JSON")
	}
	return nil
}

// endpoint returns the URL of a service: the configured one, as the SDK finds it in the environment and in files, or
// that of the region.
func (a AWS) endpoint(ctx context.Context, s awsService) string {
	for _, source := range a.config.ConfigSources {
		if ignoring, ok := source.(interface {
			GetIgnoreConfiguredEndpoints(ctx context.Context) (bool, bool, error)
		}); ok {
			if ignore, _, err := ignoring.GetIgnoreConfiguredEndpoints(ctx); err == nil && ignore {
				return a.regional(s)
			}
		}
	}
	for _, source := range a.config.ConfigSources {
		if configured, ok := source.(interface {
			GetServiceBaseEndpoint(ctx context.Context, sdkID string) (string, bool, error)
		}); ok {
			if url, found, err := configured.GetServiceBaseEndpoint(ctx, s.sdkID); err == nil && found {
				return url
			}
		}
	}
	if url := a.config.BaseEndpoint; url != nil {
		return *url
	}
	return a.regional(s)
}

// regional returns the public endpoint of a service in its region.
func (a AWS) regional(s awsService) string {
	domain := "amazonaws.com"
	for _, partition := range awsPartitions {
		if strings.HasPrefix(a.config.Region, partition.regions) {
			domain = partition.domain
		}
	}
	return "https://" + s.endpoint + "." + a.config.Region + "." + domain + "/"
}

// awsPartitions are partitions with other domains than the commercial one and GovCloud.
var awsPartitions = []struct{ regions, domain string }{
	{"cn-", "amazonaws.com.cn"},
	{"eusc-", "amazonaws.eu"},
	{"us-iso-", "c2s.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov"},
	{"us-isof-", "csp.hci.ic.gov"},
	{"eu-isoe-", "cloud.adc-e.uk"},
}

// credentialsError distinguishes refused credentials from ones that are temporarily unavailable.
func credentialsError(s awsService, err error) error {
	if refused, is := errors.AsType[smithy.APIError](err); is {
		status := http.StatusBadRequest
		var response interface{ HTTPStatusCode() int }
		if errors.As(err, &response) {
			status = response.HTTPStatusCode()
		}
		code := strings.Map(codeCharacter, refused.ErrorCode())
		return &Error{Kind: awsErrorKind(code, status), Manager: s.name, Code: "role: " + code}
	}
	return &Error{Kind: Unreachable, Manager: s.name, Code: "the credentials of the node cannot be had"}
}

// awsErrorCode returns the code of an error, such as AccessDeniedException. It keeps only letters.
func awsErrorCode(response *http.Response, body []byte) string {
	var said struct {
		Type string `json:"__type"`
	}
	_ = json.Unmarshal(body, &said) // a proxy may respond with something else
	code := cmp.Or(response.Header.Get("X-Amzn-Errortype"), said.Type)
	code, _, _ = strings.Cut(code, ":")
	code = strings.Map(codeCharacter, code[strings.LastIndexByte(code, '#')+1:])
	return cmp.Or(code[:min(len(code), 64)], "status "+http.StatusText(response.StatusCode))
}

func codeCharacter(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return -1
}

func awsErrorKind(code string, status int) Kind {
	switch {
	case status == http.StatusTooManyRequests, slices.Contains([]string{
		"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "RequestThrottled",
		"RequestThrottledException", "LimitExceededException", "SlowDown", "PriorRequestNotComplete",
	}, code):
		return Throttled
	case slices.Contains([]string{
		"ResourceNotFoundException", "ParameterNotFound", "ParameterVersionNotFound", "NotFoundException",
		"InvalidRequestException", // from Secrets Manager, for a secret that is marked for deletion
	}, code):
		return Missing
	case status >= 500, status < 400, slices.Contains([]string{
		"InternalServerError", "InternalServiceError", "KMSInternalException", "ServiceUnavailable", "DependencyTimeoutException",
		// A problem of the node, which says nothing about its rights.
		"ExpiredTokenException", "ExpiredToken", "RequestExpired", "InvalidSignatureException", "SignatureDoesNotMatch",
	}, code):
		return Unreachable
	case slices.Contains([]string{"ValidationException", "ValidationError", "InvalidParameterException", "InvalidCiphertextException"}, code):
		return Unusable
	}
	// No access, a KMS key that may not be used, or an access key that AWS no longer knows.
	return Denied
}

// Names of the services in errors.
const (
	secretsManagerName = "AWS Secrets Manager"
	parameterStoreName = "AWS Parameter Store"
)

// Secret returns a secret of AWS Secrets Manager by its name or ARN. stage is a staging label; empty means AWSCURRENT.
// A binary secret is returned as it is if it is UTF-8. The error is an Error.
func (a AWS) Secret(ctx context.Context, name, stage string, now time.Time) (string, error) {
	service := awsService{secretsManagerName, "secretsmanager", "Secrets Manager", "secretsmanager"}
	in := struct {
		SecretID     string `json:"SecretId"`
		VersionStage string `json:",omitempty"`
	}{name, stage}
	var out struct {
		SecretString *string
		SecretBinary []byte
	}
	err := a.call(ctx, awsRequest{service, "GetSecretValue", in, now}, &out)
	switch {
	case err != nil:
		return "", err
	case out.SecretString != nil:
		return *out.SecretString, nil
	case !utf8.Valid(out.SecretBinary):
		return "", &Error{Kind: Unusable, Manager: secretsManagerName, Code: "it is binary and not UTF-8"}
	}
	return string(out.SecretBinary), nil
}

// Parameter returns a parameter of Parameter Store by its name or ARN, decrypted. version is a number or a label; empty means
// the latest. The error is an Error.
func (a AWS) Parameter(ctx context.Context, name, version string, now time.Time) (string, error) {
	service := awsService{parameterStoreName, "ssm", "SSM", "AmazonSSM"}
	if version != "" {
		name += ":" + version
	}
	in := struct {
		Name           string
		WithDecryption bool
	}{name, true}
	var out struct {
		Parameter struct{ Value string }
	}
	err := a.call(ctx, awsRequest{service, "GetParameter", in, now}, &out)
	return out.Parameter.Value, err
}

const kmsName = "AWS KMS"

// keyContext is the encryption context of keys. KMS decrypts a key only with the same context and logs it, and key
// policies can require it.
func keyContext() map[string]string { return map[string]string{"carillon": "secret-key"} }

func kmsService() awsService { return awsService{kmsName, "kms", "KMS", "TrentService"} }

// CreateKey creates a random key of 32 bytes with a key of KMS. It returns the key encrypted; only DecryptKey returns
// the key itself. The error is an Error.
func (a AWS) CreateKey(ctx context.Context, arn string, now time.Time) ([]byte, error) {
	in := struct {
		KeyID             string `json:"KeyId"`
		KeySpec           string
		EncryptionContext map[string]string
	}{arn, "AES_256", keyContext()}
	var out struct{ CiphertextBlob []byte }
	err := a.call(ctx, awsRequest{kmsService(), "GenerateDataKeyWithoutPlaintext", in, now}, &out)
	return out.CiphertextBlob, err
}

// DecryptKey returns a key that CreateKey made with the same key of KMS. The error is an Error.
func (a AWS) DecryptKey(ctx context.Context, arn string, encrypted []byte, now time.Time) ([]byte, error) {
	in := struct {
		KeyID             string `json:"KeyId"`
		CiphertextBlob    []byte
		EncryptionContext map[string]string
	}{arn, encrypted, keyContext()}
	var out struct{ Plaintext []byte }
	err := a.call(ctx, awsRequest{kmsService(), "Decrypt", in, now}, &out)
	return out.Plaintext, err
}
