package provider

import "strings"

// nameRule describes the rule of input.CheckName.
const nameRule = "1 to 63 of `a-z`, `0-9`, `_` and `-`, beginning with a letter or digit"

// either lists words for a description: `A`, `B` or `C`.
func either[S ~string](words []S) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString("`" + string(word) + "`")
	}
	return b.String()
}
