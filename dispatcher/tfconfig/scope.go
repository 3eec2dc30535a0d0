package tfconfig

import (
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// scope is where an expression stands: a module, and names that only hold there, which are each, count and iterators.
type scope struct {
	in    *moduleInstance
	names map[string]cty.Value
}

// with returns a scope with one more name.
func (s scope) with(name string, value cty.Value) scope {
	inner := scope{s.in, map[string]cty.Value{}}
	maps.Copy(inner.names, s.names)
	inner.names[name] = value
	return inner
}

// value evaluates an expression. Values that cannot be evaluated here are unknown: references to other things,
// functions of the time, and mistakes, which terraform validate reports.
func (s scope) value(expr hcl.Expression) cty.Value {
	names, members := map[string]cty.Value{}, map[string]map[string]cty.Value{}
	for _, reference := range expr.Variables() {
		root := reference.RootName()
		if value, known := s.names[root]; known {
			names[root] = value
			continue
		}
		if len(reference) < 2 {
			names[root] = cty.DynamicVal
			continue
		}
		if step, ok := reference[1].(hcl.TraverseAttr); ok {
			if members[root] == nil {
				members[root] = map[string]cty.Value{}
			}
			members[root][step.Name] = s.in.lookup(root, step.Name)
		}
	}
	for root, all := range members {
		if _, known := names[root]; !known {
			names[root] = cty.ObjectVal(all)
		}
	}
	value, diags := expr.Value(&hcl.EvalContext{Variables: names, Functions: s.in.functions})
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	value, _ = value.UnmarkDeep()
	return value
}

// object returns an object value, also of no attributes.
func object(attributes map[string]cty.Value) cty.Value {
	if len(attributes) == 0 {
		return cty.EmptyObjectVal
	}
	return cty.ObjectVal(attributes)
}

// moduleInstance is the root module, or an instance of a module that another one calls.
type moduleInstance struct {
	*loader
	*config
	caller *moduleInstance // nil for the root module
	// path is its directory from that of the root module, as path.module has it.
	path string
	// address begins the addresses of its resources: empty, or such as module.many["a"] with a dot after it.
	address string
	// arguments are the values of its variables, in the scope of the caller.
	arguments map[string]hcl.Expression
	outer     scope
	providers map[string]string    // of the root module, by their names here
	found     map[string]cty.Value // by the first two parts of a reference
	calls     map[string]*call     // by name
}

func (m *moduleInstance) scope() scope { return scope{in: m} }

// lookup returns what the first two parts of a reference lead to. It is evaluated when it is first needed.
func (m *moduleInstance) lookup(root, name string) cty.Value {
	key := root + "." + name
	if _, done := m.found[key]; !done {
		m.found[key] = cty.DynamicVal // what needs itself is unknown
		m.found[key] = m.evaluate(root, name)
	}
	return m.found[key]
}

func (m *moduleInstance) evaluate(root, name string) cty.Value {
	switch {
	case root == "var":
		return m.variable(name)
	case root == "local" && m.locals[name] != nil:
		return m.scope().value(m.locals[name])
	case root == "module":
		return m.outputsOf(name)
	case root == "path" && name == "module":
		return cty.StringVal(m.path)
	case root == "path" && name == "root":
		return cty.StringVal(".")
	case root == "path" && name == "cwd":
		if dir, err := filepath.Abs(m.root); err == nil {
			return cty.StringVal(filepath.ToSlash(dir))
		}
	case Schemas()[root] != nil:
		return m.reference(root, name)
	}
	return cty.DynamicVal
}

// variable is a variable that a module declares.
type variable struct {
	kind     cty.Type
	optional *typeexpr.Defaults // of its optional attributes
	standard hcl.Expression     // its default; nil if it has none
	nullable bool
}

// variableOf reads the block of a variable. A type that is not right allows any value.
func variableOf(body *hclsyntax.Body) variable {
	v := variable{kind: cty.DynamicPseudoType, nullable: true}
	if kind := body.Attributes["type"]; kind != nil {
		if is, optional, diags := typeexpr.TypeConstraintWithDefaults(kind.Expr); !diags.HasErrors() {
			v.kind, v.optional = is, optional
		}
	}
	if standard := body.Attributes["default"]; standard != nil {
		v.standard = standard.Expr
	}
	if nullable := body.Attributes["nullable"]; nullable != nil {
		value, _ := nullable.Expr.Value(nil)
		v.nullable = !value.RawEquals(cty.False)
	}
	return v
}

// variable returns the value of a variable. A default of null is unknown in the root module: a plan replaces it.
func (m *moduleInstance) variable(name string) cty.Value {
	v, declared := m.variables[name]
	if !declared {
		return cty.DynamicVal
	}
	value, given := cty.DynamicVal, m.arguments[name]
	if given != nil {
		value = m.outer.value(given)
	}
	if v.standard != nil && (given == nil || value.IsNull() && !v.nullable) {
		value = m.scope().value(v.standard)
		if value.IsNull() && m.caller == nil {
			return cty.DynamicVal
		}
	}
	if v.optional != nil && !value.IsNull() {
		value = v.optional.Apply(value)
	}
	value, err := convert.Convert(value, v.kind)
	if err != nil {
		return cty.DynamicVal
	}
	return value
}

// call is a call of a local module.
type call struct {
	instances
	modules []*moduleInstance // one for each instance
}

// call returns a call of this module by name; nil if it is not of a local module.
func (m *moduleInstance) call(name string) *call {
	if made, done := m.calls[name]; done {
		return made
	}
	m.calls[name] = nil // what needs itself is unknown
	block := m.modules[name]
	if block == nil || block.Body.Attributes["source"] == nil {
		return nil
	}
	source := block.Body.Attributes["source"].Expr
	text, ok := stringOf(source)
	if !ok || !strings.HasPrefix(text, "./") && !strings.HasPrefix(text, "../") {
		return nil
	}
	dir := path.Join(m.path, text)
	for outer := m; outer != nil; outer = outer.caller {
		if outer.path == dir { // Terraform refuses it
			return nil
		}
	}
	config, err := m.load(dir)
	if err != nil {
		problem := problemAt(source.Range(), CodeNotRead, "module is not read: %v", err)
		problem.Warning = true
		m.module.add(m.address+"module."+name, problem)
		return nil
	}
	arguments := map[string]hcl.Expression{}
	for argument, given := range block.Body.Attributes {
		if _, declared := config.variables[argument]; declared {
			arguments[argument] = given.Expr
		}
	}
	made := &call{instances: instancesOf(block.Body, m.scope())}
	for _, one := range made.all {
		made.modules = append(made.modules, &moduleInstance{loader: m.loader, config: config, caller: m, path: dir,
			address: m.address + "module." + name + one.suffix + ".", arguments: arguments, outer: one.scope,
			providers: m.providersOf(block.Body), found: map[string]cty.Value{}, calls: map[string]*call{}})
	}
	m.calls[name] = made
	return made
}

// provider returns the configuration of the root module that a provider here stands for.
func (m *moduleInstance) provider(name string) string {
	if passed, given := m.providers[name]; given {
		return passed
	}
	return name
}

// providersOf returns the providers of a call, which has those of the caller unless it is given others.
func (m *moduleInstance) providersOf(body *hclsyntax.Body) map[string]string {
	given := body.Attributes["providers"]
	if given == nil {
		return m.providers
	}
	passed := map[string]string{}
	pairs, _ := hcl.ExprMap(given.Expr)
	for _, pair := range pairs {
		passed[traversed(pair.Key)] = m.provider(traversed(pair.Value))
	}
	return passed
}

// traversed returns the text of a reference.
func traversed(expr hcl.Expression) string {
	var names []string
	reference, _ := hcl.AbsTraversalForExpr(expr)
	for _, step := range reference {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			names = append(names, step.Name)
		case hcl.TraverseAttr:
			names = append(names, step.Name)
		}
	}
	return strings.Join(names, ".")
}

// stringOf returns the value of a literal text.
func stringOf(expr hcl.Expression) (text string, ok bool) {
	value, diags := expr.Value(nil)
	if diags.HasErrors() || value.IsNull() || value.Type() != cty.String {
		return "", false
	}
	return value.AsString(), true
}

// outputsOf returns the value of a reference to a module.
func (m *moduleInstance) outputsOf(name string) cty.Value {
	made := m.call(name)
	if made == nil {
		return cty.DynamicVal
	}
	return made.value(func(i int) cty.Value {
		all := map[string]cty.Value{}
		for output, expr := range made.modules[i].outputs {
			all[output] = made.modules[i].scope().value(expr)
		}
		return object(all)
	})
}

// reference returns the value of a reference to a resource: its app and name. Others are known to the server.
func (m *moduleInstance) reference(kind, label string) cty.Value {
	i := slices.IndexFunc(m.resources, func(b *hclsyntax.Block) bool { return b.Labels[0] == kind && b.Labels[1] == label })
	if i < 0 {
		return cty.DynamicVal
	}
	body := m.resources[i].Body
	all := instancesOf(body, m.scope())
	return all.value(func(i int) cty.Value {
		attributes := map[string]cty.Value{}
		for name := range Schemas()[kind] {
			attributes[name] = cty.DynamicVal
		}
		for _, name := range []string{"app", "name"} {
			if attribute := body.Attributes[name]; attribute != nil {
				attributes[name] = all.all[i].scope.value(attribute.Expr)
			}
		}
		return object(attributes)
	})
}
