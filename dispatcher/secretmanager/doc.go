// Package secretmanager reads secrets from AWS Secrets Manager, the Parameter Store of AWS Systems Manager, and the
// secrets engine KV version 2 of HashiCorp Vault. It also creates and decrypts keys with AWS KMS.
//
// It speaks the protocols of these services over plain HTTP: each of the few calls is one request, so requests to AWS
// need only a signature (SigV4), and no client of their SDK. A call makes one attempt; its caller decides by the Kind
// of an Error how to go on.
//
// No error contains a secret, a token or a text of a response.
package secretmanager
