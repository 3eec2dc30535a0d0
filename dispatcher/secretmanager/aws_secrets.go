package secretmanager

import (
	"context"
	"time"
	"unicode/utf8"
)

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
