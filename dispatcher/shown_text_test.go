package dispatcher_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestShownTextCannotHideOrReverseText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Zahlungen für Köln, 付款 👍": "Zahlungen für Köln, 付款 👍",
		"a\u202eb\u2066c\u200bd":   `a\u202eb\u2066c\u200bd`,
		"\u2028\u2029\ufeff":       `\u2028\u2029\ufeff`,
		"tag \U000e0041":           `tag \U000e0041`,
		"\x1b[31m\x07\r\x7f\u009b": `\x1b[31m\x07\x0d\x7f\x9b`,
		"line\nand\ttab":           "line\nand\\ttab",
		"half \xe2\x80":            "half \ufffd",
	} {
		if got := input.ShownText(text, "\n"); got != want {
			t.Errorf("ShownText(%q) = %q, want %q", text, got, want)
		}
	}
}
