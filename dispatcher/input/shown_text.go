package input

import (
	"fmt"
	"strings"
	"unicode"
)

// ShownText makes foreign text safe to show to people: nothing in it moves a cursor, changes colours, hides, or reverses the
// order of the text after it. Each such character is written as a Go string has it, such as \x1b or \u202e, except those in keep.
func ShownText(text, keep string) string {
	text = strings.ToValidUTF8(text, "\ufffd") // a byte of its own could be a control character, too
	unsafe := func(r rune) bool { return UnsafeToShow(r) && !strings.ContainsRune(keep, r) }
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var safe strings.Builder
	for _, r := range text {
		switch {
		case !unsafe(r):
			safe.WriteRune(r)
		case r == '\n':
			safe.WriteString(`\n`)
		case r == '\t':
			safe.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&safe, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&safe, `\u%04x`, r)
		default:
			fmt.Fprintf(&safe, `\U%08x`, r)
		}
	}
	return safe.String()
}

// UnsafeToShow tells control characters, invisible ones that format text, such as those that change its direction, and
// separators of lines.
func UnsafeToShow(r rune) bool {
	return r < ' ' || r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
