// Package markup checks HTML pages like a validator, without a network: no parser may have to
// repair a page, and each reference must have a target.
package markup

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// Faults returns the faults of a page.
func Faults(page string) []string {
	faults, parents := nesting(page)
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return append(faults, err.Error())
	}
	p := &judged{ids: map[string]bool{}, labelled: map[string]bool{}, faults: faults}
	if repaired := parentsOf(doc); !slices.Equal(parents, repaired) {
		p.fault("a parser repairs it: %s", firstDifference(parents, repaired))
	}
	p.collect(doc)
	for node := range doc.Descendants() {
		if node.Type == html.ElementNode {
			p.judge(node)
		}
	}
	p.judgeWhole(doc)
	return p.faults
}

// judged is a page during the check.
type judged struct {
	ids, labelled map[string]bool
	faults        []string
}

func (p *judged) fault(format string, values ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, values...))
}

// nesting reads the tags of a page one by one. It returns their faults, and the parent and name of each element.
func nesting(page string) (faults, parents []string) {
	var open []string
	tokens := html.NewTokenizer(strings.NewReader(page))
	for {
		kind := tokens.Next()
		raw := string(tokens.Raw())
		token := tokens.Token()
		switch kind {
		case html.ErrorToken:
			if err := tokens.Err(); err != io.EOF { //nolint:errorlint // the tokenizer does not wrap it
				faults = append(faults, err.Error())
			}
			for _, name := range open {
				faults = append(faults, fmt.Sprintf("<%s> is not closed", name))
			}
			return faults, parents
		case html.StartTagToken, html.SelfClosingTagToken:
			parents = append(parents, last(open)+">"+token.Data)
			faults = append(faults, attributes(token.Data, raw)...)
			if kind == html.StartTagToken && !slices.Contains(void, token.Data) {
				open = append(open, token.Data)
			}
		case html.EndTagToken:
			if last(open) != token.Data {
				faults = append(faults, fmt.Sprintf("</%s> closes <%s>", token.Data, last(open)))
				break
			}
			open = open[:len(open)-1]
		case html.DoctypeToken:
			if token.Data != "html" {
				faults = append(faults, "the document type is "+token.Data)
			}
		case html.CommentToken, html.TextToken:
		}
	}
}

// void are the elements without content and end tag.
var void = []string{"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}

// attributes returns the faults of a tag's attributes; the tokenizer can read them only once.
func attributes(name, tag string) (faults []string) {
	seen := map[string]bool{}
	for _, found := range attributePattern.FindAllStringSubmatch(strings.TrimRight(tag, "/>"), -1) {
		key := found[1]
		if seen[key] {
			faults = append(faults, fmt.Sprintf("<%s> has %s twice", name, key))
		}
		seen[key] = true
		if !attributeName.MatchString(key) || strings.HasPrefix(key, "on") || key == "style" {
			faults = append(faults, fmt.Sprintf("<%s> has the attribute %q", name, key))
		}
	}
	return faults
}

var (
	attributePattern = regexp.MustCompile(`\s([^\s=>]+)(?:="[^"]*"|='[^']*')?`)
	attributeName    = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*$`) // SVG has names with capitals
)

// parentsOf returns the parent and name of each element, in the order of the document.
func parentsOf(doc *html.Node) (all []string) {
	for node := range doc.Descendants() {
		if node.Type == html.ElementNode {
			parent := ""
			if node.Parent.Type == html.ElementNode {
				parent = node.Parent.Data
			}
			all = append(all, strings.ToLower(parent+">"+node.Data))
		}
	}
	return all
}

// firstDifference describes the first difference between the written and the parsed elements.
func firstDifference(written, parsed []string) string {
	for i := range min(len(written), len(parsed)) {
		if written[i] != parsed[i] {
			return fmt.Sprintf("element %d is %s as written, and %s as parsed", i+1, written[i], parsed[i])
		}
	}
	return fmt.Sprintf("%d elements are written, and %d are parsed", len(written), len(parsed))
}

func last(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return of[len(of)-1]
}
