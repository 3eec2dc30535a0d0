package tfconfig

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	yaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// functions are the functions of Terraform that need only their arguments, and are the same in the library of HCL.
var functions = map[string]function.Function{
	"abs": stdlib.AbsoluteFunc, "can": tryfunc.CanFunc, "ceil": stdlib.CeilFunc, "chomp": stdlib.ChompFunc,
	"chunklist": stdlib.ChunklistFunc, "coalescelist": stdlib.CoalesceListFunc, "compact": stdlib.CompactFunc,
	"concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "csvdecode": stdlib.CSVDecodeFunc,
	"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
	"floor": stdlib.FloorFunc, "format": stdlib.FormatFunc, "formatdate": stdlib.FormatDateFunc,
	"formatlist": stdlib.FormatListFunc, "indent": stdlib.IndentFunc, "join": stdlib.JoinFunc,
	"jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "keys": stdlib.KeysFunc,
	"log": stdlib.LogFunc, "lookup": stdlib.LookupFunc, "lower": stdlib.LowerFunc, "max": stdlib.MaxFunc,
	"merge": stdlib.MergeFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": stdlib.PowFunc,
	"range": stdlib.RangeFunc, "regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc,
	"reverse": stdlib.ReverseListFunc, "setintersection": stdlib.SetIntersectionFunc,
	"setproduct": stdlib.SetProductFunc, "setsubtract": stdlib.SetSubtractFunc, "setunion": stdlib.SetUnionFunc,
	"signum": stdlib.SignumFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc, "split": stdlib.SplitFunc,
	"strrev": stdlib.ReverseFunc, "substr": stdlib.SubstrFunc, "timeadd": stdlib.TimeAddFunc,
	"title": stdlib.TitleFunc, "trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc,
	"trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc, "try": tryfunc.TryFunc,
	"upper": stdlib.UpperFunc, "values": stdlib.ValuesFunc, "yamldecode": yaml.YAMLDecodeFunc,
	"yamlencode": yaml.YAMLEncodeFunc, "zipmap": stdlib.ZipmapFunc,
	"tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)), "tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
	"toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)), "tostring": stdlib.MakeToFunc(cty.String),
	"tonumber": stdlib.MakeToFunc(cty.Number), "tobool": stdlib.MakeToFunc(cty.Bool),
}

// functionsIn returns all functions. Those that read files do so as Terraform does in a directory.
func functionsIn(dir string) map[string]function.Function {
	all := maps.Clone(functions)
	all["coalesce"], all["length"], all["replace"] = coalesceFunction(), lengthFunction(), replaceFunction()
	for name, is := range map[string]func(text, part string) bool{
		"startswith": strings.HasPrefix, "endswith": strings.HasSuffix, "strcontains": strings.Contains,
	} {
		all[name] = ofTexts(cty.Bool, func(texts ...string) (cty.Value, error) {
			return cty.BoolVal(is(texts[0], texts[1])), nil
		}, "text", "part")
	}
	read := func(path string) (string, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		text, err := os.ReadFile(path)
		if err == nil && !utf8.Valid(text) {
			err = errors.New(path + " is not in UTF-8")
		}
		return string(text), err
	}
	all["file"] = ofTexts(cty.String, func(texts ...string) (cty.Value, error) {
		text, err := read(texts[0])
		return cty.StringVal(text), err
	}, "path")
	all["fileexists"] = ofTexts(cty.Bool, func(texts ...string) (cty.Value, error) {
		_, err := read(texts[0])
		return cty.BoolVal(!errors.Is(err, fs.ErrNotExist)), nil
	}, "path")
	all["fileset"] = ofTexts(cty.Set(cty.String), func(texts ...string) (cty.Value, error) { return filesOf(dir, texts[0], texts[1]) },
		"path", "pattern")
	inTemplates := maps.Clone(all) // without templatefile, as in Terraform
	render := func(args []cty.Value) (cty.Value, error) {
		text, err := read(args[0].AsString())
		if err != nil {
			return cty.DynamicVal, err
		}
		template, diags := hclsyntax.ParseTemplate([]byte(text), args[0].AsString(), hcl.InitialPos)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		value, diags := template.Value(&hcl.EvalContext{Variables: args[1].AsValueMap(), Functions: inTemplates})
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		return value, nil
	}
	all["templatefile"] = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}, {Name: "vars", Type: cty.DynamicPseudoType}},
		Type: func(args []cty.Value) (cty.Type, error) {
			if !args[0].IsKnown() || !args[1].IsKnown() {
				return cty.DynamicPseudoType, nil
			}
			value, err := render(args)
			return value.Type(), err
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return render(args) },
	})
	return all
}

// ofTexts returns a function whose parameters are texts.
func ofTexts(result cty.Type, call func(texts ...string) (cty.Value, error), parameters ...string) function.Function {
	spec := &function.Spec{Type: function.StaticReturnType(result), Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		var texts []string
		for _, arg := range args {
			texts = append(texts, arg.AsString())
		}
		return call(texts...)
	}}
	for _, name := range parameters {
		spec.Params = append(spec.Params, function.Parameter{Name: name, Type: cty.String})
	}
	return function.New(spec)
}

// filesOf returns the names of the files in a directory that match a pattern, as fileset does.
func filesOf(root, dir, pattern string) (cty.Value, error) {
	none := cty.UnknownVal(cty.Set(cty.String))
	if strings.Contains(pattern, "**") || strings.Contains(pattern, "{") {
		return none, nil // package fs does not know them
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, dir)
	}
	files := os.DirFS(dir)
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return none, err
	}
	var found []cty.Value
	for _, name := range names {
		if info, err := fs.Stat(files, name); err == nil && info.Mode().IsRegular() {
			found = append(found, cty.StringVal(name))
		}
	}
	if len(found) == 0 {
		return cty.SetValEmpty(cty.String), nil
	}
	return cty.SetVal(found), nil
}

// coalesceFunction is coalesce, which passes over empty texts as over null.
func coalesceFunction() function.Function {
	values := function.Parameter{Name: "values", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true, AllowDynamicType: true}
	return function.New(&function.Spec{
		VarParam: &values,
		Type:     stdlib.CoalesceFunc.ReturnTypeForValues,
		Impl: func(args []cty.Value, result cty.Type) (cty.Value, error) {
			value, err := stdlib.Coalesce(slices.DeleteFunc(slices.Clone(args), cty.StringVal("").RawEquals)...)
			if err != nil {
				return value, err
			}
			return convert.Convert(value, result)
		},
	})
}

// lengthFunction is length, of texts, too.
func lengthFunction() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			switch of := args[0].Type(); {
			case of == cty.String:
				return stdlib.Strlen(args[0])
			case of.IsObjectType():
				return cty.NumberIntVal(int64(len(of.AttributeTypes()))), nil
			}
			return stdlib.Length(args[0])
		},
	})
}

// replaceFunction is replace, by a regular expression if it is in slashes.
func replaceFunction() function.Function {
	return ofTexts(cty.String, func(texts ...string) (cty.Value, error) {
		text, old, replacement := cty.StringVal(texts[0]), texts[1], cty.StringVal(texts[2])
		if len(old) > 1 && old[0] == '/' && old[len(old)-1] == '/' {
			return stdlib.RegexReplace(text, cty.StringVal(old[1:len(old)-1]), replacement)
		}
		return stdlib.Replace(text, cty.StringVal(old), replacement)
	}, "text", "old", "new")
}
