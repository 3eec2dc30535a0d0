package secretmanager_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/test/servers"
)

// client returns a client of a server, with the credentials of the node.
func client(server *servers.AWS) secretmanager.AWS {
	return secretmanager.NewAWS(aws.Config{
		Region: "eu-central-1", BaseEndpoint: aws.String(server.URL), HTTPClient: server.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(servers.AccessKeyID, servers.SecretAccessKey, ""),
	}, "")
}

// reads are the two ways to read a secret in AWS.
func reads(c secretmanager.AWS) map[string]func(ctx context.Context, name, version string) (string, error) {
	return map[string]func(ctx context.Context, name, version string) (string, error){
		"GetSecretValue": func(ctx context.Context, name, version string) (string, error) {
			return c.Secret(ctx, name, version, time.Now())
		},
		"GetParameter": func(ctx context.Context, name, version string) (string, error) {
			return c.Parameter(ctx, name, version, time.Now())
		},
	}
}

func TestSecretsOfAWSAreReadByNameARNAndVersion(t *testing.T) {
	t.Parallel()
	server := servers.NewAWS(t)
	const arn = "arn:aws:secretsmanager:us-west-2:123456789012:secret:shared-AbCdEf"
	const parameter = "arn:aws:ssm:us-west-2:123456789012:parameter/shared"
	server.PutSecret("billing/db", "old")
	server.PutSecret("billing/db", `{"password":"p<ä"}`)
	server.PutSecret(arn, "binary:by-arn")
	server.PutParameter("/billing/token", "one", "stable")
	server.PutParameter("/billing/token", "two")
	server.PutParameter(parameter, "shared-one")
	server.PutParameter(parameter, "shared-two")
	all := reads(client(server))
	for _, tt := range []struct{ operation, name, version, want string }{
		{"GetSecretValue", "billing/db", "", `{"password":"p<ä"}`},
		{"GetSecretValue", "billing/db", "AWSPREVIOUS", "old"},
		{"GetSecretValue", arn, "", "by-arn"},
		{"GetParameter", "/billing/token", "", "two"},
		{"GetParameter", "/billing/token", "1", "one"},
		{"GetParameter", "/billing/token", "stable", "one"},
		{"GetParameter", parameter, "1", "shared-one"},
	} {
		if got, err := all[tt.operation](t.Context(), tt.name, tt.version); err != nil || got != tt.want {
			t.Errorf("%s %s %s = %q, %v, want %q", tt.operation, tt.name, tt.version, got, err, tt.want)
		}
	}
}

// Each error of AWS has a kind, and none of its texts is shown, because they name accounts and roles.
func TestErrorsOfAWSHaveKinds(t *testing.T) {
	t.Parallel()
	const unreachable, throttled, denied, missing, unusable = secretmanager.Unreachable, secretmanager.Throttled, secretmanager.Denied,
		secretmanager.Missing, secretmanager.Unusable
	for name, tt := range map[string]struct {
		fault servers.Fault
		want  secretmanager.Kind
	}{
		"throttled":               {servers.Fault{Status: 400, Code: "ThrottlingException"}, throttled},
		"throttled by a proxy":    {servers.Fault{Status: 429, Body: "<html>slow down"}, throttled},
		"denied":                  {servers.Fault{Status: 400, Code: "AccessDeniedException"}, denied},
		"a denied KMS key":        {servers.Fault{Status: 400, Code: "DecryptionFailure"}, denied},
		"expired credentials":     {servers.Fault{Status: 400, Code: "ExpiredTokenException"}, unreachable},
		"a wrong clock":           {servers.Fault{Status: 403, Code: "InvalidSignatureException"}, unreachable},
		"an unknown access key":   {servers.Fault{Status: 400, Code: "UnrecognizedClientException"}, denied},
		"not there":               {servers.Fault{Status: 400, Code: "ResourceNotFoundException"}, missing},
		"marked for deletion":     {servers.Fault{Status: 400, Code: "InvalidRequestException"}, missing},
		"no such parameter":       {servers.Fault{Status: 400, Code: "ParameterNotFound"}, missing},
		"an internal error":       {servers.Fault{Status: 500, Code: "InternalServiceError"}, unreachable},
		"unavailable":             {servers.Fault{Status: 503, Body: "<html>"}, unreachable},
		"a page that is not JSON": {servers.Fault{Status: 200, Body: "<html>a captive portal"}, unreachable},
		"a redirect":              {servers.Fault{Status: 302, Body: "moved"}, unreachable},
		"wrong parameters":        {servers.Fault{Status: 400, Code: "InvalidParameterException"}, unusable},
		"too large":               {servers.Fault{Status: 200, Body: strings.Repeat(" ", 600<<10)}, unusable},
		"slow":                    {servers.Fault{Slow: true}, unreachable},
	} {
		server := servers.NewAWS(t)
		for operation, read := range reads(client(server)) {
			server.Fail(operation, tt.fault)
			ctx, cancel := context.WithCancel(t.Context())
			if tt.fault.Slow {
				cancel()
			}
			_, err := read(ctx, "billing/db", "")
			cancel()
			var e *secretmanager.Error
			if !errors.As(err, &e) || e.Kind != tt.want || strings.Contains(err.Error(), "1234") || strings.Contains(err.Error(), "html") {
				t.Errorf("%s, %s: error = %v, want kind %d without a text of AWS", name, operation, err, tt.want)
			}
		}
	}
}

func TestRequestsWithTheWrongKeyAreNotSigned(t *testing.T) {
	t.Parallel()
	server := servers.NewAWS(t)
	server.PutSecret("billing/db", "x")
	wrong := aws.Config{
		Region: "eu-central-1", BaseEndpoint: aws.String(server.URL), HTTPClient: server.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(servers.AccessKeyID, "another", ""),
	}
	_, err := secretmanager.NewAWS(wrong, "").Secret(t.Context(), "billing/db", "", time.Now())
	if err == nil || !strings.Contains(err.Error(), "InvalidSignatureException") {
		t.Errorf("error = %v, want the server to refuse the signature", err)
	}
	if _, err = client(server).Secret(t.Context(), "billing/db", "", time.Now().Add(-time.Hour)); err == nil {
		t.Error("a signature of an hour ago was accepted")
	}
}

func TestKeysOfKMSDecryptWithTheirKeyOnly(t *testing.T) {
	t.Parallel()
	server := servers.NewAWS(t)
	c, now := client(server), time.Now()
	const arn = "arn:aws:kms:eu-central-1:123456789012:key/1"
	blob, err := c.CreateKey(t.Context(), arn, now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.DecryptKey(t.Context(), arn, blob, now)
	again, _ := c.DecryptKey(t.Context(), arn, blob, now)
	if err != nil || len(key) != 32 || string(again) != string(key) || strings.Contains(string(blob), string(key)) {
		t.Errorf("key of %d bytes, %v, want 32 that are the same each time", len(key), err)
	}
	for name, tt := range map[string]struct {
		arn  string
		blob []byte
		want secretmanager.Kind
	}{
		"another key":   {"arn:aws:kms:eu-central-1:123456789012:key/2", blob, secretmanager.Unusable},
		"altered":       {arn, append([]byte{blob[0] ^ 1}, blob[1:]...), secretmanager.Unusable},
		"a disabled":    {"arn:aws:kms:eu-central-1:123456789012:key/disabled", blob, secretmanager.Denied},
		"a missing key": {"alias/none", blob, secretmanager.Missing},
	} {
		var e *secretmanager.Error
		if _, err := c.DecryptKey(t.Context(), tt.arn, tt.blob, now); !errors.As(err, &e) || e.Kind != tt.want {
			t.Errorf("%s: error = %v, want kind %d", name, err, tt.want)
		}
	}
}

// endpoints stands for the configuration that the SDK reads from the environment and from files.
type endpoints map[string]string

func (e endpoints) GetServiceBaseEndpoint(_ context.Context, sdkID string) (string, bool, error) {
	url, ok := e[sdkID]
	return url, ok, nil
}

// dialled records the hosts of requests.
type dialled struct{ hosts *[]string }

func (d dialled) Do(r *http.Request) (*http.Response, error) {
	*d.hosts = append(*d.hosts, r.URL.Host)
	return nil, errors.New("not here")
}

func TestRequestsGoToTheEndpointOfTheRegionUnlessAnotherIsConfigured(t *testing.T) {
	t.Parallel()
	var hosts []string
	config := aws.Config{
		Region: "eu-central-1", HTTPClient: dialled{&hosts},
		Credentials: credentials.NewStaticCredentialsProvider(servers.AccessKeyID, "k", ""),
	}
	for _, region := range []string{"", "cn-north-1", "us-gov-west-1", "eusc-de-east-1", "us-isob-east-1"} {
		_, _ = secretmanager.NewAWS(config, region).Secret(t.Context(), "a", "", time.Now())
	}
	config.BaseEndpoint = aws.String("https://all.test")
	config.ConfigSources = []any{endpoints{"SSM": "https://ssm.test"}}
	_, _ = secretmanager.NewAWS(config, "").Parameter(t.Context(), "a", "", time.Now())
	_, _ = secretmanager.NewAWS(config, "").Secret(t.Context(), "a", "", time.Now())
	want := strings.Join([]string{
		"secretsmanager.eu-central-1.amazonaws.com", "secretsmanager.cn-north-1.amazonaws.com.cn", "secretsmanager.us-gov-west-1.amazonaws.com",
		"secretsmanager.eusc-de-east-1.amazonaws.eu", "secretsmanager.us-isob-east-1.sc2s.sgov.gov", "ssm.test", "all.test",
	}, " ")
	if got := strings.Join(hosts, " "); got != want {
		t.Errorf("requests went to\n%s, want\n%s", got, want)
	}
}
