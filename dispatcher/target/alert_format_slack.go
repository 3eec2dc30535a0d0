package target

import (
	"encoding/json"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Bounds of a message to Slack. Slack allows 3,000 characters in a section, 2,000 in a field of one, and some 13,000 in all
// blocks together, where it refuses the message as a whole. Texts are cut well below, after they are escaped.
const (
	slackTitle = 500
	slackField = 300
	slackError = 2000
)

type slackText struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji *bool  `json:"emoji,omitempty"`
}

type slackBlock struct {
	Type   string      `json:"type"`
	Text   *slackText  `json:"text,omitempty"`
	Fields []slackText `json:"fields,omitempty"`
}

type slackAttachment struct {
	Color    string       `json:"color"`
	Fallback string       `json:"fallback"`
	Blocks   []slackBlock `json:"blocks"`
}

type slackMessage struct {
	Text        string            `json:"text"`
	Markdown    bool              `json:"mrkdwn"`
	Attachments []slackAttachment `json:"attachments"`
}

// Slack returns a message for an incoming webhook of Slack: the title as text, which notifications show, and the facts as
// blocks in an attachment, whose colour tells the transition.
//
// No text is read as mrkdwn, and control characters are escaped, so that neither a name nor an error can format the message,
// link to a page or notify a channel. See https://docs.slack.dev/messaging/formatting-message-text#escaping and
// https://docs.slack.dev/reference/block-kit/composition-objects/text-object.
func (n AlertNotification) Slack() []byte {
	look := n.slackLook()
	title := look.emoji + " " + n.Title()
	message := slackMessage{Text: slackEscape(title, slackTitle)}
	var fields []slackText
	for _, f := range n.facts() {
		fields = append(fields, plainText(f.name+": "+input.OneLine(f.value), slackField))
	}
	blocks := []slackBlock{{Type: "section", Fields: fields}}
	if n.Error != "" {
		text := plainText(n.Error, slackError)
		blocks = append(blocks, slackBlock{Type: "section", Text: &text})
	}
	message.Attachments = []slackAttachment{{Color: look.color, Fallback: message.Text, Blocks: blocks}}
	body, _ := json.Marshal(message) // no field of it can fail
	return body
}

func plainText(text string, most int) slackText {
	return slackText{Type: "plain_text", Text: slackEscape(text, most), Emoji: new(false)}
}

type slackLook struct{ emoji, color string }

func (n AlertNotification) slackLook() slackLook {
	switch n.Transition {
	case AlertResolved:
		return slackLook{"🟢", "#2eb67d"}
	case AlertAcknowledged:
		return slackLook{"👀", "#ecb22e"}
	case AlertTest:
		return slackLook{"🔔", "#36c5f0"}
	default:
		return slackLook{"🔴", "#e01e5a"}
	}
}

// slackEscape escapes the three control characters of Slack, and returns at most most bytes, cut between two characters.
func slackEscape(text string, most int) string {
	const mark = "…"
	var b strings.Builder
	end := 0 // of what leaves room for the mark
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		switch r {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case 0:
			b.WriteRune('\uFFFD')
		default:
			b.WriteRune(r)
		}
		if b.Len() > most {
			return b.String()[:end] + mark
		}
		if b.Len() <= most-len(mark) {
			end = b.Len()
		}
	}
	return b.String()
}
