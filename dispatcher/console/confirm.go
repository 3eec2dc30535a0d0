package console

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// confirmPage asks before something that cannot be undone, or that acts on many. Its form goes to the URL of the page itself, so
// that the action has the path of its screen.
type confirmPage struct {
	// Text says what happens, and Facts are what it happens to.
	Text  string
	Facts []fact
	// Fields are sent as they are, and Asks are filled in.
	Fields url.Values
	Asks   []ask
	// Button is what the button says. Harm tells that it destroys something.
	Button string
	Harm   bool
	// Back leads to where the person comes from.
	Back string
}

// fact is one line of what a person has to know before they agree.
type fact struct {
	Name  string
	Value any
}

// ask is a field of a confirmation that a person fills in.
type ask struct{ Name, Label, Hint, Value string }

// confirm returns the page that asks. title, text and button are keys of texts; values are for all three.
func (v *visit) confirm(name string, page confirmPage, values ...any) content {
	page.Text = v.Texts.Text(name+".text", values...)
	page.Button = v.Texts.Text(name + ".button")
	return content{Title: v.Texts.Text(name+".title", values...), Data: page}
}

// fact returns a fact; key is that of the text that names it.
func (v *visit) fact(key string, value any) fact { return fact{v.Texts.Text(key), value} }

// ask returns a field to fill in; key is that of its label, and KEY.hint that of how to fill it in.
func (v *visit) ask(name, key, value string) ask {
	hint := ""
	if v.Texts.Has(key + ".hint") {
		hint = v.Texts.Text(key + ".hint")
	}
	if v.PostForm != nil {
		value = v.PostForm.Get(name)
	}
	return ask{Name: name, Label: v.Texts.Text(key), Hint: hint, Value: value}
}

// noticeLife is how long a notice waits for the next page.
const noticeLife = time.Minute

// notice is what the next page tells once.
type notice struct {
	Key    string   `json:"k"`
	Values []string `json:"v"`
}

// setNotice leaves a notice for the next page.
func (v *visit) setNotice(key string, values []any) {
	n := notice{Key: key}
	for _, value := range values {
		n.Values = append(n.Values, kit.TextOf(value))
	}
	raw, err := json.Marshal(n)
	if err != nil || len(raw) > 2<<10 {
		return
	}
	v.setCookie(noticeCookie, base64.RawURLEncoding.EncodeToString(raw), noticeLife)
}

// takeNotice returns the notice for this page, and forgets it; empty: there is none.
func (v *visit) takeNotice() string {
	raw, err := base64.RawURLEncoding.DecodeString(v.cookie(noticeCookie))
	var n notice
	if err != nil || len(raw) == 0 || json.Unmarshal(raw, &n) != nil || !v.Texts.Has(n.Key) {
		return ""
	}
	v.setCookie(noticeCookie, "", 0)
	values := make([]any, len(n.Values))
	for i, value := range n.Values {
		values[i] = value
	}
	return v.Texts.Text(n.Key, values...)
}
