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

const kmsName = "AWS KMS"

// keyContext is the encryption context of keys. KMS decrypts a key only with the same, logs it, and key policies can
// demand it.
func keyContext() map[string]string { return map[string]string{"carillon": "secret-key"} }

func kmsService() awsService { return awsService{kmsName, "kms", "KMS", "TrentService"} }

// CreateKey has a key of KMS create a random key of 32 bytes. It returns it encrypted: only DecryptKey tells the key itself.
// The error is an Error.
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
