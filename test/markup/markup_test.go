package markup_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/markup"
)

// page returns a faultless page with some HTML in main.
func page(main string) string {
	return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title></head><body><main><h1>A page</h1>` + main +
		`</main></body></html>`
}

func TestFaultsOfAPage(t *testing.T) {
	t.Parallel()
	table := func(row string) string {
		return page(`<table><thead><tr><th scope="col">A</th><th scope="col">B</th></tr></thead><tbody><tr>` + row + `</tr></tbody></table>`)
	}
	for name, test := range map[string]struct{ page, want string }{
		"none":                        {page(`<p id="a">Text<br><a href="#a">up</a></p><svg aria-hidden="true"><path d="M0 0"/></svg>`), ""},
		"none of a form":              {page(`<form><label>A<input name="a"></label><button>Go</button></form>`), ""},
		"none of a label":             {page(`<label for="a">A</label><input id="a" name="a"><button hidden></button>`), ""},
		"none of a table":             {table(`<th scope="row">1</th><td>2</td>`), ""},
		"no document type":            {strings.TrimPrefix(page(""), "<!doctype html>"), "no document type"},
		"no language":                 {strings.Replace(page(""), ` lang="en"`, "", 1), "language"},
		"no title":                    {strings.Replace(page(""), "A page", "", 1), "0 titles"},
		"no main part":                {strings.ReplaceAll(page(""), "main>", "div>"), "0 main parts"},
		"not closed":                  {page(`<section>`), "</main> closes <section>"},
		"closed twice":                {page(`<b>x</b></b>`), "</b> closes <main>"},
		"repaired":                    {page(`<p><div>x</div></p>`), "a parser repairs it"},
		"repaired table":              {page(`<table><tr><th scope="col">x</th></tr></table>`), "a parser repairs it"},
		"attribute twice":             {page(`<p id="a" id="b">x</p>`), "has id twice"},
		"attribute of text":           {page(`<p a"b="c">x</p>`), "has the attribute"},
		"handler":                     {page(`<p onclick="x()">x</p>`), "onclick"},
		"style":                       {page(`<p style="color: red">x</p>`), `"style"`},
		"id twice":                    {page(`<p id="a">x</p><p id="a">y</p>`), "not unique"},
		"label without element":       {page(`<label for="a">x</label>`), "refers to no element"},
		"label without field":         {page(`<label>x</label>`), "has 0 fields"},
		"description without element": {page(`<p aria-describedby="a">x</p>`), "refers to no element"},
		"link without target":         {page(`<a href="#a">x</a>`), "not on the page"},
		"field without label":         {page(`<input name="a">`), "has no label"},
		"button without text":         {page(`<button><svg aria-hidden="true"></svg></button>`), "has no text"},
		"form in a form":              {page(`<form><form></form></form>`), "a parser repairs it"},
		"button in a link":            {page(`<a href="x">a<button>b</button></a>`), "<button> is in <a>"},
		"link in a button":            {page(`<button>a<a href="x">b</a></button>`), "<a> is in <button>"},
		"link in a label":             {page(`<label>a<a href="x">b</a><input name="c"></label>`), "<a> is in <label>"},
		"item without list":           {page(`<li>x</li>`), "<li> is in <main>"},
		"text in a list":              {page(`<ul>x<li>y</li></ul>`), "<ul> holds"},
		"no header cells":             {page(`<table><tbody><tr><td>x</td></tr></tbody></table>`), "no header cells"},
		"header without scope":        {table(`<th>1</th><td>2</td>`), "has no scope"},
		"too few cells":               {table(`<td>1</td>`), "has 1 cells"},
		"too wide a cell":             {table(`<td colspan="3">1</td>`), "has 3 cells"},
		"picture":                     {page(`<svg></svg>`), "neither hidden nor described"},
		"headings":                    {page(`<h3>x</h3>`), "follows one of level 1"},
		"two first headings":          {page(`<h1>x</h1>`), "2 headings of level 1"},
	} {
		faults := strings.Join(markup.Faults(test.page), "; ")
		if (test.want == "") != (faults == "") || !strings.Contains(faults, test.want) {
			t.Errorf("%s: the faults are %q, want %q", name, faults, test.want)
		}
	}
}
