// Package secretmanager reads secrets from AWS Secrets Manager, the Parameter Store of AWS Systems Manager, and the
// secrets engine KV version 2 of HashiCorp Vault. It also creates and decrypts keys with AWS KMS.
//
// It speaks the protocols of these services over plain HTTP: each of the few calls is one request, so requests to AWS
// need only a signature (SigV4), and no client of their SDK. A call makes one attempt; its caller decides by the Kind
// of an Error how to go on.
//
// No error contains a secret, a token or a text of a response.
package secretmanager

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Pick returns the text at a key of a secret that is a JSON object; an empty key returns all of it. Dots lead into
// nested objects, but a name that contains the dots takes precedence. Strings, numbers and booleans are texts. The
// error is an Error of kind Unusable. Line breaks at the end are removed, because secrets often come from files.
func Pick(document, key string) (string, error) {
	text := document
	if key != "" {
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(document), &object) != nil || object == nil {
			return "", unusable("it is not a JSON object, so it has no keys")
		}
		found, ok := lookUp(object, key)
		if !ok {
			return "", unusable("its JSON does not have the key")
		}
		if text, ok = scalar(found); !ok {
			return "", unusable("the value of the key is neither a string nor a number nor a boolean")
		}
	}
	if text = strings.TrimRight(text, "\r\n"); text == "" {
		return "", unusable("it is empty")
	}
	return text, nil
}

func unusable(code string) error { return &Error{Kind: Unusable, Manager: "the manager", Code: code} }

func lookUp(object map[string]json.RawMessage, key string) (json.RawMessage, bool) {
	if found, ok := object[key]; ok {
		return found, true
	}
	for at, c := range key {
		if c != '.' {
			continue
		}
		var inner map[string]json.RawMessage
		if json.Unmarshal(object[key[:at]], &inner) != nil {
			continue
		}
		if found, ok := lookUp(inner, key[at+1:]); ok {
			return found, true
		}
	}
	return nil, false
}

// scalar returns the text of a JSON string, number or boolean.
func scalar(value json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(value, &text) == nil && string(value) != "null" {
		return text, true
	}
	text = string(value)
	return text, text != "null" && !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[")
}

// Kind is why a secret could not be read.
type Kind int

// Kinds of errors.
const (
	// Unreachable is a manager that does not respond, responds too slowly, or has an internal error, or that the node
	// cannot authenticate to now, because its credentials have expired or its clock is wrong.
	Unreachable Kind = iota
	// Throttled is a manager that gets too many requests.
	Throttled
	// Denied is a secret that the node may not read.
	Denied
	// Missing is a secret, or a version of it, that does not exist or was deleted.
	Missing
	// Unusable is a secret that does not fit its reference, or a request that the manager does not understand.
	Unusable
	// NotAsked is a secret for which the manager was not asked, because the node lacks a setting. Another node may have it.
	NotAsked
)

// String returns the name of a kind, in one word.
func (k Kind) String() string {
	return map[Kind]string{
		Unreachable: "unreachable", Throttled: "throttled", Denied: "denied", Missing: "missing", Unusable: "unusable",
		NotAsked: "not_asked",
	}[k]
}

// Error is why a secret could not be read.
type Error struct {
	Kind    Kind
	Manager string // such as AWS Secrets Manager
	// Code is the manager's own code of the error, or our description of its response.
	Code string
}

// Error describes the response of the manager.
func (e *Error) Error() string {
	what := map[Kind]string{
		Unreachable: "%s does not respond as it should (%s)",
		Throttled:   "%s gets too many requests (%s)",
		Denied:      "%s does not let this node read it (%s)",
		Missing:     "%s does not have it (%s)",
		Unusable:    "%s has it, but it cannot be used (%s)",
		NotAsked:    "%s was not asked: %s",
	}[e.Kind]
	return fmt.Sprintf(what, e.Manager, e.Code)
}

// IsTemporary reports whether an error is an Error of a temporary Kind.
func IsTemporary(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Kind == Unreachable || e.Kind == Throttled)
}
