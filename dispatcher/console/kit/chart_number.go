package kit

import "strconv"

// GroupDigits writes a count with a narrow space between thousands, as in 12 345, which no language reads as a decimal point.
func GroupDigits(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "−", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return sign + text
}
