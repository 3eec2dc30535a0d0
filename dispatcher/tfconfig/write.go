package tfconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Content is an app with its calendars, endpoint groups, jobs and alerts, as a server has them.
type Content struct {
	App       access.App
	Calendars []dispatcher.Calendar
	Groups    []target.EndpointGroup
	Jobs      []dispatcher.Job
	Alerts    []alert.Alert
}

// Write writes an app as Terraform resources, each with a block that imports it. Default values are left out. Values
// of secrets are variables, because the server does not return them. Bounds are left out, so that Terraform does not
// manage them.
func (c Content) Write(to io.Writer) error {
	w := writer{file: hclwrite.NewEmptyFile(), labels: map[string]string{}, variables: map[string]bool{}}
	w.labels[AppType+"/"+c.App.Name] = label(c.App.Name)
	for _, calendar := range c.Calendars {
		w.labels[CalendarType+"/"+calendar.Name] = label(calendar.Name)
	}
	for _, job := range c.Jobs {
		w.labels[JobType+"/"+job.Name] = label(job.Name)
	}
	for _, group := range c.Groups {
		w.labels[GroupType+"/"+group.Name] = label(group.Name)
	}
	app := c.App
	app.Bounds = nil
	tree, err := treeOf(app)
	if err != nil {
		return err
	}
	w.resource(AppType, app.Name, app.Name, appWithoutDefaults(tree))
	for _, calendar := range c.Calendars {
		tree, err := treeOf(calendar)
		if err != nil {
			return err
		}
		w.resource(CalendarType, calendar.Name, app.Name+"/"+calendar.Name, calendarWithoutDefaults(tree))
	}
	for _, group := range c.Groups {
		tree, err := treeOf(group.Resolved())
		if err != nil {
			return err
		}
		w.owner = group.Name
		w.resource(GroupType, group.Name, app.Name+"/"+group.Name, groupWithoutDefaults(tree))
	}
	for _, job := range c.Jobs {
		tree, err := jobTree(job, c.App.Defaults)
		if err != nil {
			return fmt.Errorf("job %s: %w", job.Name, err)
		}
		w.owner = job.Name
		w.resource(JobType, job.Name, app.Name+"/"+job.Name, tree)
	}
	for _, alert := range c.Alerts {
		tree, err := treeOf(alert.Resolved())
		if err == nil {
			tree, err = alertWithoutDefaults(tree)
		}
		if err != nil {
			return fmt.Errorf("alert %s: %w", alert.Name, err)
		}
		w.owner = alert.Name
		w.resource(AlertType, alert.Name, app.Name+"/"+alert.Name, tree)
	}
	_, err = w.file.WriteTo(to)
	return err
}

// label returns the label of the resource of that name. Names may begin with a digit, labels may not.
func label(name string) string {
	if name != "" && unicode.IsDigit(rune(name[0])) {
		return "_" + name
	}
	return name
}

// writer writes a file.
type writer struct {
	file      *hclwrite.File
	labels    map[string]string // of resources, by type and name
	variables map[string]bool   // declared variables
	owner     string            // the group, job or alert being written
}

// order is the order in which people expect the most important attributes. Others follow by name, blocks last.
var order = []string{
	"app", "name", "hostname", "description", "runbook_url", "enabled",
	"expression", "timezone", "url", "method", "function", "queue_arn", "topic_arn",
	"reference", "value", "target", "destination", "webhook", "lambda", "group", "sqs", "sns", "retry", "trigger", "jobs",
	"on_success", "on_failure", "on_misfire",
}

// resource writes a resource and its import block. tree is its JSON from the API.
func (w *writer) resource(kind, name, id string, tree map[string]any) {
	body := w.file.Body()
	if len(body.Blocks()) > 0 {
		body.AppendNewline()
	}
	imported := body.AppendNewBlock("import", nil).Body()
	imported.SetAttributeTraversal("to", hcl.Traversal{hcl.TraverseRoot{Name: kind}, hcl.TraverseAttr{Name: label(name)}})
	imported.SetAttributeValue("id", cty.StringVal(id))
	body.AppendNewline()
	block := body.AppendNewBlock("resource", []string{kind, label(name)})
	w.block(block.Body(), Schemas()[kind], tree, nil)
}

// block writes the contents of a block. path has the names of the blocks around it.
func (w *writer) block(body *hclwrite.Body, schema Schema, tree map[string]any, path []string) {
	rank := func(name string) int {
		i := slices.Index(order, name)
		if i < 0 {
			i = len(order)
		}
		if schema[name].isBlock() {
			i += len(order) + 1
		}
		return i
	}
	names := slices.SortedFunc(slices.Values(schema.names()), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
	for _, name := range names {
		a := schema[name]
		value, given := tree[field(name)]
		switch {
		case !given:
			if name == "value" && tree["stored"] == true {
				body.SetAttributeRaw(name, w.secret(path))
			}
		case a.isBlock():
			w.blocks(body, name, a, value, append(slices.Clone(path), name))
		default:
			refersTo := name
			if name == "name" && len(path) > 0 && path[len(path)-1] == "group" {
				refersTo = "group"
			}
			body.SetAttributeRaw(name, w.tokens(refersTo, a, value))
		}
	}
}

// blocks writes the blocks of one name.
func (w *writer) blocks(body *hclwrite.Body, name string, a Attribute, value any, path []string) {
	one := func(own string, tree any, path []string) {
		inner, _ := tree.(map[string]any)
		if len(body.Attributes()) > 0 || len(body.Blocks()) > 0 {
			body.AppendNewline()
		}
		block := body.AppendNewBlock(name, nil).Body()
		if own != "" {
			block.SetAttributeValue("name", cty.StringVal(own))
		}
		w.block(block, a.Attributes, inner, path)
	}
	switch value := value.(type) {
	case map[string]any:
		if a.Kind == Single {
			one("", value, path)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			one(key, value[key], append(slices.Clone(path), key))
		}
	case []any:
		for _, element := range value {
			one("", element, path)
		}
	}
}

// tokens returns the expression for a value.
func (w *writer) tokens(name string, a Attribute, value any) hclwrite.Tokens {
	text, _ := value.(string)
	switch {
	case name == "app" && w.labels[AppType+"/"+text] != "":
		return nameOf(AppType, w.labels[AppType+"/"+text])
	case name == "calendar" && w.labels[CalendarType+"/"+text] != "":
		return nameOf(CalendarType, w.labels[CalendarType+"/"+text])
	case name == "group" && w.labels[GroupType+"/"+text] != "":
		return nameOf(GroupType, w.labels[GroupType+"/"+text])
	case name == "bases":
		return w.names(CalendarType, value)
	case name == "jobs" && a.Kind == Texts:
		return w.names(JobType, value)
	case a.Kind == Document:
		return document(value)
	case a.Kind == Length:
		return hclwrite.TokensForValue(cty.StringVal(short(text)))
	case a.Kind == Durations:
		var all []cty.Value
		for _, element := range value.([]any) {
			text, _ := element.(string)
			all = append(all, cty.StringVal(short(text)))
		}
		return hclwrite.TokensForValue(cty.TupleVal(all))
	}
	return hclwrite.TokensForValue(constant(value))
}

// names returns a list of names of resources of a kind.
func (w *writer) names(kind string, value any) hclwrite.Tokens {
	var all []hclwrite.Tokens
	for _, name := range value.([]any) {
		text, _ := name.(string)
		if to := w.labels[kind+"/"+text]; to != "" {
			all = append(all, nameOf(kind, to))
		} else {
			all = append(all, hclwrite.TokensForValue(cty.StringVal(text)))
		}
	}
	return hclwrite.TokensForTuple(all)
}

// nameOf refers to the name of a resource.
func nameOf(kind, label string) hclwrite.Tokens {
	return hclwrite.TokensForTraversal(hcl.Traversal{
		hcl.TraverseRoot{Name: kind}, hcl.TraverseAttr{Name: label}, hcl.TraverseAttr{Name: "name"}})
}

// secret declares a variable for the value of a secret, and refers to it.
func (w *writer) secret(path []string) hclwrite.Tokens {
	name := "secret_" + w.owner
	for _, part := range path {
		if part != "target" && part != "webhook" && part != "destination" {
			name += "_" + part
		}
	}
	for w.variables[name] {
		name += "_"
	}
	w.variables[name] = true
	body := w.file.Body()
	block := hclwrite.NewBlock("variable", []string{name})
	block.Body().SetAttributeTraversal("type", hcl.Traversal{hcl.TraverseRoot{Name: "string"}})
	block.Body().SetAttributeValue("sensitive", cty.True)
	block.Body().SetAttributeValue("ephemeral", cty.True)
	body.AppendNewline()
	body.AppendBlock(block)
	return hclwrite.TokensForTraversal(hcl.Traversal{hcl.TraverseRoot{Name: "var"}, hcl.TraverseAttr{Name: name}})
}

// document returns jsonencode of a JSON value, which people can read, or its text if HCL would write a number otherwise.
func document(value any) hclwrite.Tokens {
	written := constant(value)
	if text, err := stdlib.JSONEncode(written); err == nil {
		if again, err := parse([]byte(text.AsString())); err == nil && reflect.DeepEqual(again, value) {
			return hclwrite.TokensForFunctionCall("jsonencode", hclwrite.TokensForValue(written))
		}
	}
	text, _ := json.Marshal(value) //nolint:errchkjson // it was JSON
	return hclwrite.TokensForValue(cty.StringVal(string(text)))
}

// constant returns a JSON value as one of HCL.
func constant(value any) cty.Value {
	switch value := value.(type) {
	case string:
		return cty.StringVal(value)
	case bool:
		return cty.BoolVal(value)
	case json.Number:
		return cty.MustParseNumberVal(value.String())
	case []any:
		all := make([]cty.Value, len(value))
		for i := range value {
			all[i] = constant(value[i])
		}
		return cty.TupleVal(all)
	case map[string]any:
		all := map[string]cty.Value{}
		for key := range value {
			all[key] = constant(value[key])
		}
		return object(all)
	}
	return cty.NullVal(cty.DynamicPseudoType)
}

// short writes a duration without the zero parts that Go adds: 1m, not 1m0s.
func short(text string) string {
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// WriteJob writes one job like Content.Write, with the names of its app and calendars in place of references, and
// with the defaults of its app, because the app is not in the file.
func WriteJob(to io.Writer, job dispatcher.Job) error {
	w := writer{file: hclwrite.NewEmptyFile(), labels: map[string]string{}, variables: map[string]bool{}, owner: job.Name}
	tree, err := jobTree(job, nil)
	if err != nil {
		return fmt.Errorf("job %s: %w", job.Name, err)
	}
	w.resource(JobType, job.Name, job.App+"/"+job.Name, tree)
	_, err = w.file.WriteTo(to)
	return err
}
