package input

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut returns text with at most most bytes, cut between two characters and marked so.
func Cut(text string, most int) string {
	const mark = "…"
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := max(most-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// OneLine replaces control characters, such as line breaks, and characters that no service takes in a message by spaces.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == 0xFFFE || r == 0xFFFF {
			return ' '
		}
		return r
	}, text)
}

// CheckRange reports a number outside [low, high].
func CheckRange(problems *Problems, path string, n, low, high int) {
	if n < low || n > high {
		problems.Add(path, CodeCountRange, "%s %d is not in %d to %d", path[strings.LastIndexByte(path, '/')+1:], n, low, high)
	}
}

// CheckText bounds free text and refuses control characters, which terminals obey and databases refuse, and bytes that
// are no characters.
func CheckText(problems *Problems, path, text string) {
	const most = 1024
	if n := len([]rune(text)); n > most {
		problems.Add(path, CodeTextTooLong, "text has %d characters; the maximum is %d", n, most)
	}
	if !utf8.ValidString(text) {
		problems.Add(path, CodeJSONUTF8, "text is not UTF-8")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		problems.Add(path, CodeTextInvalid, "text holds a control character; only line breaks and tabs are allowed")
	}
}

// IsControl reports a control character of ASCII.
func IsControl(r rune) bool { return r < ' ' || r == 0x7f }

// Listed joins words for a message.
func Listed[S ~string](words []S) string {
	if len(words) == 0 {
		return "none"
	}
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = string(word)
	}
	return strings.Join(names, ", ")
}

// SortedKeys returns the keys of m in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
