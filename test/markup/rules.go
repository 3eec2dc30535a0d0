package markup

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
)

// attribute returns an attribute of an element, and whether it exists.
func attribute(node *html.Node, name string) (string, bool) {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func has(node *html.Node, name string) bool {
	_, is := attribute(node, name)
	return is
}

// within returns the nearest ancestor with one of the names, or nil.
func within(node *html.Node, names ...string) *html.Node {
	for up := range node.Ancestors() {
		if up.Type == html.ElementNode && slices.Contains(names, up.Data) {
			return up
		}
	}
	return nil
}

// elements returns the elements with one of the names within a node.
func elements(node *html.Node, names ...string) (all []*html.Node) {
	for one := range node.Descendants() {
		if one.Type == html.ElementNode && slices.Contains(names, one.Data) {
			all = append(all, one)
		}
	}
	return all
}

// text returns the readable text of an element.
func text(node *html.Node) string {
	var b strings.Builder
	for one := range node.Descendants() {
		if one.Type == html.TextNode {
			b.WriteString(one.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// named reports whether an element has an accessible name.
func named(node *html.Node) bool {
	label, _ := attribute(node, "aria-label")
	return text(node) != "" || strings.TrimSpace(label) != "" || has(node, "aria-labelledby")
}

// collect records the ids, which must be unique, and the ids in labels.
func (p *judged) collect(doc *html.Node) {
	for _, label := range elements(doc, "label") {
		if of, is := attribute(label, "for"); is && text(label) != "" {
			p.labelled[of] = true
		}
	}
	for node := range doc.Descendants() {
		id, is := attribute(node, "id")
		if !is {
			continue
		}
		if p.ids[id] || id == "" || strings.ContainsAny(id, " \t\n") {
			p.fault("the id %q of <%s> is not unique, or no id", id, node.Data)
		}
		p.ids[id] = true
	}
}

// references are the attributes with ids.
var references = []string{"for", "aria-labelledby", "aria-describedby", "aria-controls", "aria-owns", "list", "form"}

// onlyWithin are elements and their only permitted ancestors, as far as a parser does not enforce them.
var onlyWithin = map[string][]string{
	"li": {"ul", "ol"}, "dt": {"dl", "div"}, "dd": {"dl", "div"}, "legend": {"fieldset"}, "summary": {"details"},
	"option": {"select", "optgroup"}, "symbol": {"svg"}, "caption": {"table"},
}

// notWithin are elements and their forbidden ancestors.
var notWithin = map[string][]string{
	"a": {"a", "button", "label"}, "button": {"a", "button", "label"}, "form": {"form", "a", "button"}, "label": {"label", "a", "button"},
	"input": {"a", "button"}, "select": {"a", "button"}, "textarea": {"a", "button"}, "details": {"a", "button"}, "main": {"main"},
}

// judge checks an element.
func (p *judged) judge(node *html.Node) {
	for _, name := range references {
		ids, _ := attribute(node, name)
		for _, id := range strings.Fields(ids) {
			if !p.ids[id] {
				p.fault("%s=%q of <%s> refers to no element", name, id, node.Data)
			}
		}
	}
	if link, _ := attribute(node, "href"); strings.HasPrefix(link, "#") && !p.ids[link[1:]] {
		p.fault("<%s> leads to %s, which is not on the page", node.Data, link)
	}
	if parents := onlyWithin[node.Data]; parents != nil && !slices.Contains(parents, node.Parent.Data) {
		p.fault("<%s> is in <%s>", node.Data, node.Parent.Data)
	}
	if outer := within(node, notWithin[node.Data]...); outer != nil {
		p.fault("<%s> is in <%s>", node.Data, outer.Data)
	}
	switch node.Data {
	case "input", "select", "textarea":
		p.judgeField(node)
	case "a", "button", "summary":
		if !named(node) && !has(node, "hidden") {
			p.fault("<%s> has no text", node.Data)
		}
	case "label":
		if fields := elements(node, "input", "select", "textarea"); len(fields) != 1 && !has(node, "for") {
			p.fault("the label %q has %d fields", text(node), len(fields))
		}
	case "ul", "ol", "dl":
		p.judgeList(node)
	case "table":
		p.judgeTable(node)
	case "svg":
		if !has(node, "aria-hidden") && !has(node, "aria-label") {
			p.fault("a picture is neither hidden nor described")
		}
	}
}

// judgeField requires a label for each visible field.
func (p *judged) judgeField(node *html.Node) {
	kind, _ := attribute(node, "type")
	if kind == "hidden" {
		return
	}
	id, _ := attribute(node, "id")
	label := within(node, "label")
	if (label == nil || text(label) == "") && !p.labelled[id] && !has(node, "aria-label") && !has(node, "aria-labelledby") {
		name, _ := attribute(node, "name")
		p.fault("the field %q has no label", name)
	}
}

// judgeList permits only items in a list.
func (p *judged) judgeList(list *html.Node) {
	want := []string{"li"}
	if list.Data == "dl" {
		want = []string{"div", "dt", "dd"}
	}
	for child := range list.ChildNodes() {
		item := child.Type == html.ElementNode && slices.Contains(want, child.Data)
		if blank := child.Type == html.TextNode && strings.TrimSpace(child.Data) == ""; !item && !blank {
			p.fault("<%s> holds %q", list.Data, child.Data)
		}
	}
}

// judgeTable requires header cells with a scope, and the same number of cells in every row.
func (p *judged) judgeTable(table *html.Node) {
	headers := elements(table, "th")
	if len(headers) == 0 {
		p.fault("a table has no header cells")
	}
	for _, header := range headers {
		if scope, _ := attribute(header, "scope"); scope != "col" && scope != "row" {
			p.fault("the header cell %q has no scope", text(header))
		}
	}
	width := 0
	for i, row := range elements(table, "tr") {
		cells := 0
		for _, cell := range elements(row, "th", "td") {
			cells += span(cell)
		}
		if i > 0 && cells != width {
			p.fault("row %d of a table has %d cells, and its first row %d", i+1, cells, width)
		}
		if i == 0 {
			width = cells
		}
	}
}

// span returns the number of columns of a cell.
func span(cell *html.Node) int {
	columns, _ := attribute(cell, "colspan")
	if n, err := strconv.Atoi(columns); err == nil && n > 0 {
		return n
	}
	return 1
}

// judgeWhole checks the page as a whole.
func (p *judged) judgeWhole(doc *html.Node) {
	if doc.FirstChild == nil || doc.FirstChild.Type != html.DoctypeNode {
		p.fault("there is no document type")
	}
	for _, root := range elements(doc, "html") {
		if lang, _ := attribute(root, "lang"); lang == "" {
			p.fault("the page does not tell its language")
		}
	}
	titles := 0
	for _, title := range elements(doc, "title") {
		if title.Parent.Data == "head" && text(title) != "" {
			titles++
		}
	}
	if titles != 1 {
		p.fault("the page has %d titles", titles)
	}
	if mains := len(elements(doc, "main")); mains != 1 {
		p.fault("the page has %d main parts", mains)
	}
	if first := len(elements(doc, "h1")); first != 1 {
		p.fault("the page has %d headings of level 1", first)
	}
	level := 1
	for _, heading := range elements(doc, "h1", "h2", "h3", "h4", "h5", "h6") {
		next := int(heading.Data[1] - '0')
		if next > level+1 {
			p.fault("the heading %q of level %d follows one of level %d", text(heading), next, level)
		}
		level = next
	}
}
