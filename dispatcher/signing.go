package dispatcher

// Signing says how requests are signed, by Standard Webhooks.
type Signing struct {
	// Secrets are one to MaxSigningSecrets by name. A request has one signature for each, so
	// that receivers go on verifying while one is replaced. whsec_ and base64 of 24 to 64 bytes
	// makes HMAC-SHA256 signatures (v1), whsk_ and base64 of a private key ed25519 ones (v1a).
	Secrets map[string]Secret `json:"secrets"`
}

// MaxSigningSecrets bounds the signatures of a request.
const MaxSigningSecrets = 5

func (s *Signing) check(faults *Faults, path string) {
	if s == nil {
		return
	}
	path += "/secrets"
	switch n := len(s.Secrets); {
	case n == 0:
		faults.Add(path, CodeRequired, "signing has no secret; give it one by a name")
	case n > MaxSigningSecrets:
		faults.Add(path, CodeTooMany, "signing has %d secrets; the maximum is %d", n, MaxSigningSecrets)
		return
	}
	for _, name := range sortedKeys(s.Secrets) {
		at := path + Pointer(name)
		CheckName(faults, at, name)
		s.Secrets[name].check(faults, at)
	}
}

// CloudEvents is how a request is a CloudEvent 1.0; empty: it is none.
type CloudEvents string

// The modes of CloudEvents.
const (
	CloudEventsBinary     CloudEvents = "binary"     // attributes are headers
	CloudEventsStructured CloudEvents = "structured" // the body is an envelope around the payload
)

// CloudEventsModes are all of them.
var CloudEventsModes = []CloudEvents{CloudEventsBinary, CloudEventsStructured}
