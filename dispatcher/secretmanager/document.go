package secretmanager

import (
	"encoding/json"
	"strings"
)

// Pick returns the text at a key of a secret that is a JSON object; an empty key returns all of it. Dots lead into nested
// objects, but a name that holds the dots itself comes first. Strings, numbers and booleans are texts. The error is an Error
// of kind Unusable. Line breaks at the end are removed: files from which secrets are created often have one.
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
