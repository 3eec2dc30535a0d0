package console

import "net/url"

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
