package servers

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"strings"
)

// createKey returns a random key, encrypted by the KMS key for its context.
func (in awsInput) createKey() (out any, code string) {
	if code := in.keyError(); code != "" {
		return nil, code
	}
	if in.KeySpec != "AES_256" {
		return nil, "ValidationException"
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return map[string]any{"CiphertextBlob": in.cipher().Seal(nil, nil, key, in.context()), "KeyId": in.KeyID}, ""
}

func (in awsInput) decrypt() (out any, code string) {
	if code := in.keyError(); code != "" {
		return nil, code
	}
	key, err := in.cipher().Open(nil, nil, in.CiphertextBlob, in.context())
	if err != nil {
		return nil, "InvalidCiphertextException"
	}
	return map[string]any{"Plaintext": key, "KeyId": in.KeyID}, ""
}

func (in awsInput) keyError() string {
	switch {
	case strings.HasSuffix(in.KeyID, "disabled"):
		return "DisabledException"
	case !strings.HasPrefix(in.KeyID, "arn:aws:kms:"):
		return "NotFoundException"
	}
	return ""
}

// cipher returns the cipher of a KMS key, derived from its ARN.
func (in awsInput) cipher() cipher.AEAD {
	sum := sha256.Sum256([]byte(in.KeyID))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		panic(err) // impossible: the key has 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func (in awsInput) context() []byte {
	text, _ := json.Marshal(in.EncryptionContext) // keys are sorted
	return text
}
