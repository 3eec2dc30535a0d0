package secretmanager

import (
	"context"
	"time"
)

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
