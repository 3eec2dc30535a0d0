package kit

import (
	"html/template"
	"strings"
)

// Tone returns how a state looks: each has a colour and a shape, and the badge also has the word.
func Tone(state string) string {
	switch state {
	case "succeeded", "active", "up", "complete", "enabled", "ok", "run", "fire_once", "fire_all", "closed", "met", "valid":
		return "good"
	case "failed", "timed_out", "lost", "error", "dead", "down", "firing", "refused", "open", "breached", "quarantined", "expired", "missing":
		return "bad"
	case "retrying", "late", "misfire", "suspect", "overdue", "at_risk", "saturated", "skewed", "ending", "rollback", "missed", "half_open":
		return "warn"
	case "running", "claimed", "queued", "waiting_callback", "waiting_shards", "draining", "cancelling", "pending", "live":
		return "busy"
	case "paused", "muted", "suspended", "disabled":
		return "halt"
	case "skipped", "skip", "cancelled", "superseded", "excluded", "none":
		return "off"
	}
	return "idle" // planned, waiting, init, executing, which says nothing of results, and what has no tone of its own
}

// Badge shows a state by word, shape and colour.
func (r Reader) Badge(state string) template.HTML {
	name := strings.ToLower(state)
	if name == "" {
		return None
	}
	word := name
	if key := "state." + name; r.Texts.Has(key) {
		word = r.Texts.Text(key)
	}
	return Markup(`<span class="badge badge-`, Tone(name), `" data-state="`, name, `">`, word, `</span>`)
}
