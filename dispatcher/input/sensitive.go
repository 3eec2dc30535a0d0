package input

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// Sensitive is a text that never shows in JSON, logs, errors or any format of fmt. Only Reveal
// returns it. The zero value is no text.
type Sensitive struct {
	// A pointer, because fmt prints unexported fields without calling their methods.
	text  *string
	wired bool // JSON holds the text; see ForWire
}

// NewSensitive returns text as a Sensitive.
func NewSensitive(text string) Sensitive { return Sensitive{text: &text} }

const redacted = "[redacted]"

// Reveal returns the text.
func (s Sensitive) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no text; an empty text is one.
func (s Sensitive) IsZero() bool { return s.text == nil }

// Equal compares the texts.
func (s Sensitive) Equal(other Sensitive) bool {
	return s.IsZero() == other.IsZero() && s.Reveal() == other.Reveal()
}

// String returns a placeholder.
func (s Sensitive) String() string { return redacted }

// Format is String for every verb.
func (s Sensitive) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue is String.
func (s Sensitive) LogValue() slog.Value { return slog.StringValue(redacted) }

// ForWire returns s such that its JSON holds the text: for a definition on its way to the API.
func (s Sensitive) ForWire() Sensitive {
	s.wired = true
	return s
}

// MarshalJSON is String, except after ForWire.
func (s Sensitive) MarshalJSON() ([]byte, error) {
	if s.wired {
		return json.Marshal(s.Reveal())
	}
	return json.Marshal(redacted)
}

// UnmarshalText takes the text.
func (s *Sensitive) UnmarshalText(text []byte) error {
	*s = NewSensitive(string(text))
	return nil
}
