package console

// progress is a bar of several parts, as a drawing. What it shows is in a table as well.
type progress struct {
	Width int
	Parts []progressPart
}

// progressPart is one part of a bar, in units of the drawing.
type progressPart struct {
	Key      string
	Tone     string // see tone
	X, Width float64
	Count    int
}

// portion is a number that a bar shows; key is that of its text.
type portion struct {
	key   string
	count int
}

// progressWidth is the width of a bar in units of its drawing.
const progressWidth = 600

// progressBar returns the bar of parts of a total.
func progressBar(total int, parts ...portion) progress {
	b := progress{Width: progressWidth}
	sum := 0
	for _, p := range parts {
		sum += p.count
	}
	total = max(total, sum, 1)
	at := 0.0
	for _, p := range parts {
		width := float64(p.count) * progressWidth / float64(total)
		if p.count > 0 {
			b.Parts = append(b.Parts, progressPart{p.key, tone(p.key), at, width, p.count})
		}
		at += width
	}
	return b
}
