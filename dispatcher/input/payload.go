package input

import "encoding/json"

// MaxPayload bounds a payload, in bytes.
const MaxPayload = 256 << 10

// MaxPayloadDepth bounds how deep a payload nests.
const MaxPayloadDepth = 32

// CheckPayload reports a payload that is too large, too deep or no JSON; none is all right.
func CheckPayload(problems *Problems, payload json.RawMessage) {
	if len(payload) > MaxPayload {
		problems.Add("/payload", CodePayloadTooLarge, "payload has %d bytes; the maximum is 256 KiB", len(payload))
		return
	}
	if len(payload) == 0 {
		return
	}
	if !json.Valid(payload) {
		problems.Add("/payload", CodeJSONSyntax, "payload is not JSON")
		return
	}
	if depth := JSONDepth(payload); depth > MaxPayloadDepth {
		problems.Add("/payload", CodeJSONDepth, "payload is nested %d deep; the maximum is %d", depth, MaxPayloadDepth)
	}
}

// JSONDepth returns how deep valid JSON nests; a scalar has depth 0.
func JSONDepth(text []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
