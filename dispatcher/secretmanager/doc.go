// Package secretmanager reads secrets from where they are kept: AWS Secrets Manager, the Parameter Store of AWS Systems
// Manager, and the secrets engine KV version 2 of HashiCorp Vault. It also has AWS KMS create and decrypt keys.
//
// It speaks the protocols of these services over plain HTTP: the few calls that are needed are one request each, so the
// requests to AWS need only a signature (SigV4), and no client of their SDK. A call makes one attempt; the caller that reads a
// secret decides what an Error means for it, by its Kind.
//
// No error contains a secret, a token or a text of a response.
package secretmanager
