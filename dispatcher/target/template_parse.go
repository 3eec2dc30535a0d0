package target

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
	"time"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// isTemplate reports whether a text has actions. Other texts are never parsed as templates.
func isTemplate(text string) bool { return strings.Contains(text, "{{") }

// parseTemplate parses a template that may use fields, and adds all its problems under path. A problem names the place and
// never repeats the text, which may be a credential.
func parseTemplate(problems *input.Problems, path, text string, fields []string) *template {
	p := templateParser{problems: problems, path: path, text: text, fields: fields, used: map[field]bool{}}
	tree := parse.New("template")
	tree.Mode = parse.SkipFuncCheck // templateParser checks functions better
	defined := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "{{", "}}", defined); err != nil {
		problems.Add(path, input.CodeTemplateSyntax, "template cannot be read%s; each {{ needs its }} and each if its end; "+
			"write literal braces as {{\"{{\"}}", syntaxError(err))
		return nil
	}
	for name := range defined {
		if name != tree.Name {
			problems.Add(path, input.CodeTemplateForm, "template defines another, which is not allowed; %s", allowedForms)
			return nil
		}
	}
	var t template
	if tree.Root != nil {
		t.parts = p.list(tree.Root)
	}
	t.fires, t.payload = p.used[fieldPreviousFire] || p.used[fieldNextFire], p.used[fieldPayload]
	if p.found > 0 {
		return nil
	}
	return &t
}

const allowedForms = "allowed are {{.Field}}, {{function .Field}}, {{\"text\"}} and {{if .Field}} … {{else}} … {{end}}"

// syntaxWords are the beginnings of the parser's messages, up to where they may repeat the text.
var syntaxWords = regexp.MustCompile(`^template: template:([0-9]+): ([a-z ]*[a-z])`)

func syntaxError(err error) string {
	found := syntaxWords.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	return fmt.Sprintf(" at line %s: %s", found[1], found[2])
}

// templateParser turns a parse tree into parts, and refuses constructs that are not allowed.
type templateParser struct {
	problems   *input.Problems
	path, text string
	fields     []string // allowed fields
	used       map[field]bool
	found      int // problems
}

// mostTemplateProblems bounds the problems of one template, because finding the place of each reads the whole text.
const mostTemplateProblems = 20

func (p *templateParser) problem(at parse.Node, code, format string, args ...any) {
	if p.found++; p.found > mostTemplateProblems {
		return
	}
	before := p.text[:min(int(at.Position()), len(p.text))]
	where := fmt.Sprintf("character %d", utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])+1)
	if line := strings.Count(before, "\n") + 1; strings.Contains(p.text, "\n") {
		where = fmt.Sprintf("line %d, %s", line, where)
	}
	p.problems.Add(p.path, code, "template at %s: %s", where, fmt.Sprintf(format, args...))
}

func (p *templateParser) list(list *parse.ListNode) []part {
	if list == nil {
		return nil
	}
	var parts []part
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.TextNode:
			parts = append(parts, part{text: string(n.Text)})
		case *parse.ActionNode:
			if e := p.pipe(n.Pipe); e != nil {
				p.finish(n, e)
				parts = append(parts, part{value: e})
			}
		case *parse.IfNode:
			parts = append(parts, part{when: p.condition(n), then: p.list(n.List), otherwise: p.list(n.ElseList)})
		case *parse.CommentNode:
		default:
			p.problem(n, input.CodeTemplateForm, "this construct is not allowed; %s", allowedForms)
		}
	}
	return parts
}

// condition returns the field that an if tests.
func (p *templateParser) condition(n *parse.IfNode) field {
	e := p.pipe(n.Pipe)
	if e != nil && *e != (expression{field: e.field}) || e != nil && e.field == fieldNone {
		p.problem(n, input.CodeTemplateForm, "if asks whether there is a value in a field; write {{if .PreviousFire}}")
	}
	if e == nil {
		return fieldNone
	}
	return e.field
}

// finish checks the value that an action writes.
func (p *templateParser) finish(n parse.Node, e *expression) {
	if e.field == fieldPayload && !e.json {
		p.problem(n, input.CodeTemplateFunc, "the payload is JSON; write it as {{json .Payload}}")
	}
	if e.field == fieldState && !e.json {
		p.problem(n, input.CodeTemplateFunc, "the state is JSON; write it as {{json .State}}")
	}
}

// pipe returns the expression of a pipeline; nil if it has a problem.
func (p *templateParser) pipe(pipe *parse.PipeNode) *expression {
	if len(pipe.Decl) > 0 {
		p.problem(pipe, input.CodeTemplateForm, "variables are not allowed; %s", allowedForms)
		return nil
	}
	var e *expression
	for i, command := range pipe.Cmds {
		operands := command.Args[1:]
		function, is := command.Args[0].(*parse.IdentifierNode)
		switch {
		case is && i > 0 && e == nil:
			return nil
		case is:
			e = p.call(function, operands, e)
		case i > 0 || len(operands) > 0:
			p.problem(command, input.CodeTemplateForm, "what is no function takes nothing; %s", allowedForms)
			return nil
		default:
			e = p.operand(command.Args[0])
		}
	}
	return e
}

// operand returns the expression of one term; nil if it has a problem.
func (p *templateParser) operand(node parse.Node) *expression {
	switch n := node.(type) {
	case *parse.FieldNode:
		return p.field(n)
	case *parse.StringNode:
		return &expression{literal: n.Text}
	case *parse.PipeNode:
		return p.pipe(n)
	case *parse.IdentifierNode:
		return p.call(n, nil, nil)
	case *parse.DotNode:
		p.problem(n, input.CodeTemplateField, "a lone dot is no field; %s", p.allowedFields())
	default:
		p.problem(n, input.CodeTemplateForm, "this is neither a field nor a text in quotes; %s", allowedForms)
	}
	return nil
}

func (p *templateParser) allowedFields() string {
	return "allowed are ." + strings.Join(p.fields, ", .")
}

func (p *templateParser) field(n *parse.FieldNode) *expression {
	name := n.Ident[0]
	switch {
	case !slices.Contains(p.fields, name) && slices.Contains(CallbackTemplateFields, name):
		p.problem(n, input.CodeTemplateField, "%s", p.noCallback())
		return nil
	case !slices.Contains(p.fields, name):
		p.problem(n, input.CodeTemplateField, "there is no such field; %s", p.allowedFields())
		return nil
	case len(n.Ident) > 1:
		p.problem(n, input.CodeTemplateField, "fields have no parts; {{json .Payload}} is the whole payload")
		return nil
	}
	p.used[field(name)] = true
	return &expression{field: field(name)}
}

// noCallback explains why a field of the callback cannot be used.
func (p *templateParser) noCallback() string {
	if slices.Contains(p.fields, string(fieldCallbackURL)) {
		return "the token of the callback has no place here, because URLs and hash keys are logged on their way; write " +
			"{{.CallbackToken}} in a header or in the body, or remove it"
	}
	return "the target has no callback, so there is nothing to call back to; add callback, which the webhook and the group of a job " +
		"may have, or remove the field"
}

// call applies a function to operands and, as the last one, to the piped value. Each function may be
// used once, in a fixed order, because quotes within quotes would grow without end.
func (p *templateParser) call(function *parse.IdentifierNode, operands []parse.Node, piped *expression) *expression {
	if !slices.Contains(templateFunctions, function.Ident) {
		p.problem(function, input.CodeTemplateFunc, "there is no such function; allowed are %s", strings.Join(templateFunctions, ", "))
		return nil
	}
	e := piped
	if e == nil && len(operands) > 0 {
		if e = p.operand(operands[len(operands)-1]); e == nil {
			return nil
		}
		operands = operands[:len(operands)-1]
	}
	switch {
	case e == nil:
		p.problem(function, input.CodeTemplateFunc, "%s is not told of what; write {{%s .ScheduledAt}}", function.Ident, function.Ident)
		return nil
	case function.Ident == functionDate:
		return p.date(function, operands, e)
	case len(operands) > 0:
		p.problem(function, input.CodeTemplateFunc, "%s takes one value", function.Ident)
		return nil
	case e.escaped || e.json && function.Ident == functionJSON:
		p.problem(function, input.CodeTemplateFunc, "%s is not applied to what %s has made", function.Ident,
			strings.Join(templateFunctions[:2], " or "))
		return nil
	}
	e.json, e.escaped = e.json || function.Ident == functionJSON, function.Ident == functionURLQuery
	return e
}

// date parses a layout and an optional zone.
func (p *templateParser) date(function *parse.IdentifierNode, operands []parse.Node, e *expression) *expression {
	const form = `write {{date "%Y-%m-%d" .ScheduledAt}} or {{date "%H:%M" "Europe/Berlin" .ScheduledAt}}`
	texts := make([]string, 0, 2)
	for _, operand := range operands {
		if text, is := operand.(*parse.StringNode); is {
			texts = append(texts, text.Text)
		}
	}
	if !e.field.instant() || e.layout != "" || e.json || e.escaped || len(texts) != len(operands) || len(texts) < 1 || len(texts) > 2 {
		p.problem(function, input.CodeTemplateFunc, "date takes a layout in quotes, perhaps a time zone in quotes, and an instant; %s", form)
		return nil
	}
	if !checkDate(texts[0]) {
		p.problem(function, input.CodeTemplateFunc, "the layout of date has no directive, or one that is unknown; there are %s", dateDirectives)
		return nil
	}
	e.layout, e.zone = texts[0], time.UTC
	if len(texts) == 2 {
		zone, known := schedule.Location(texts[1])
		if !known || texts[1] == "" {
			p.problem(function, input.CodeTemplateFunc, "the time zone of date is not an IANA zone; use a name such as Europe/Berlin")
			return nil
		}
		e.zone = zone
	}
	return e
}
