package kit

// Progress is a bar of several parts, as a drawing. What it shows is in a table as well.
type Progress struct {
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

// Portion is a number that a bar shows; Key is that of its text.
type Portion struct {
	Key   string
	Count int
}

// progressWidth is the width of a bar in units of its drawing.
const progressWidth = 600

// ProgressBar returns the bar of parts of a total.
func ProgressBar(total int, parts ...Portion) Progress {
	b := Progress{Width: progressWidth}
	sum := 0
	for _, p := range parts {
		sum += p.Count
	}
	total = max(total, sum, 1)
	at := 0.0
	for _, p := range parts {
		width := float64(p.Count) * progressWidth / float64(total)
		if p.Count > 0 {
			b.Parts = append(b.Parts, progressPart{p.Key, Tone(p.Key), at, width, p.Count})
		}
		at += width
	}
	return b
}
