package tfconfig

import (
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// scope is what expressions may refer to, by the first part of a reference.
type scope map[string]cty.Value

// with returns a scope that has one more name.
func (s scope) with(name string, value cty.Value) scope {
	inner := maps.Clone(s)
	inner[name] = value
	return inner
}

// value evaluates an expression. What cannot be evaluated here is unknown: references to other things,
// functions that read files, and mistakes, which terraform validate reports.
func (s scope) value(expr hcl.Expression) cty.Value {
	names := maps.Clone(s)
	if names == nil {
		names = scope{}
	}
	for _, reference := range expr.Variables() {
		if _, known := names[reference.RootName()]; !known {
			names[reference.RootName()] = cty.DynamicVal
		}
	}
	value, diags := expr.Value(&hcl.EvalContext{Variables: names, Functions: functions()})
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	value, _ = value.UnmarkDeep()
	return value
}

// evaluateLocals evaluates locals in the order in which they need one another.
func evaluateLocals(outer scope, locals map[string]hcl.Expression) cty.Value {
	done, busy := map[string]cty.Value{}, map[string]bool{}
	var evaluate func(name string)
	evaluate = func(name string) {
		expr, known := locals[name]
		if _, is := done[name]; is || !known || busy[name] {
			return
		}
		busy[name] = true
		for _, reference := range expr.Variables() {
			if step, ok := at(reference, 1).(hcl.TraverseAttr); ok && reference.RootName() == "local" {
				evaluate(step.Name)
			}
		}
		done[name] = outer.with("local", object(done)).value(expr)
	}
	for name := range locals {
		evaluate(name)
	}
	return object(done)
}

// at returns a step of a reference, nil if it has fewer.
func at(reference hcl.Traversal, n int) hcl.Traverser {
	if n < len(reference) {
		return reference[n]
	}
	return nil
}

// object returns an object value, also of no attributes.
func object(attributes map[string]cty.Value) cty.Value {
	if len(attributes) == 0 {
		return cty.EmptyObjectVal
	}
	return cty.ObjectVal(attributes)
}

// functions are those of Terraform that need nothing but their arguments.
func functions() map[string]function.Function {
	return map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "chomp": stdlib.ChompFunc, "chunklist": stdlib.ChunklistFunc,
		"coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc, "compact": stdlib.CompactFunc,
		"concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "csvdecode": stdlib.CSVDecodeFunc,
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
		"floor": stdlib.FloorFunc, "format": stdlib.FormatFunc, "formatdate": stdlib.FormatDateFunc,
		"formatlist": stdlib.FormatListFunc, "indent": stdlib.IndentFunc, "join": stdlib.JoinFunc,
		"jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "keys": stdlib.KeysFunc,
		"lookup": stdlib.LookupFunc, "lower": stdlib.LowerFunc, "max": stdlib.MaxFunc, "merge": stdlib.MergeFunc,
		"min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "range": stdlib.RangeFunc,
		"reverse": stdlib.ReverseListFunc, "setproduct": stdlib.SetProductFunc, "setunion": stdlib.SetUnionFunc,
		"slice": stdlib.SliceFunc, "sort": stdlib.SortFunc, "split": stdlib.SplitFunc, "substr": stdlib.SubstrFunc,
		"timeadd": stdlib.TimeAddFunc, "title": stdlib.TitleFunc, "trim": stdlib.TrimFunc,
		"trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc,
		"upper": stdlib.UpperFunc, "values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		"tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)), "tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
		"toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)), "tostring": stdlib.MakeToFunc(cty.String),
		"tonumber": stdlib.MakeToFunc(cty.Number), "tobool": stdlib.MakeToFunc(cty.Bool),
	}
}
