package api

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sources are the comments and constants of the packages, by path.
type sources map[string]*source

type source struct {
	types     map[string]sourceType
	functions map[string]string // comments
	constants map[string]ast.Expr
	enums     map[string][]enumValue // by type, which may be of another package
}

type sourceType struct {
	comment string
	fields  map[string]string // comments
}

type enumValue struct{ value, comment string }

const module = "github.com/carillon-dev/carillon/"

// domain are the packages whose constants comments may name without the package: their own or a neighbour.
var domain = []string{module + "dispatcher", module + "dispatcher/run", module + "dispatcher/target", module + "dispatcher/input",
	module + "dispatcher/schedule", module + "dispatcher/repeat", module + "dispatcher/access", module + "dispatcher/alert"}

// of reads a package.
func (all sources) of(t *testing.T, path string) *source {
	t.Helper()
	if s := all[path]; s != nil {
		return s
	}
	s := &source{map[string]sourceType{}, map[string]string{}, map[string]ast.Expr{}, map[string][]enumValue{}}
	all[path] = s
	short, ours := strings.CutPrefix(path, module)
	if !ours {
		return s
	}
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(short), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		s.file(file, short[strings.LastIndexByte(short, '/')+1:])
	}
	return s
}

func (s *source) file(file *ast.File, pkg string) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			s.functions[decl.Name.Name] = paragraph(decl.Doc)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					s.typ(spec, cmp.Or(paragraph(spec.Doc), paragraph(decl.Doc)))
				case *ast.ValueSpec:
					s.values(spec, decl.Tok, pkg)
				}
			}
		}
	}
}

func (s *source) typ(spec *ast.TypeSpec, comment string) {
	typ := sourceType{comment, map[string]string{}}
	if fields, ok := spec.Type.(*ast.StructType); ok {
		for _, field := range fields.Fields.List {
			for _, name := range field.Names {
				typ.fields[name.Name] = cmp.Or(paragraph(field.Doc), paragraph(field.Comment))
			}
		}
	}
	s.types[spec.Name.Name] = typ
}

// values notes constants, and those of a type as its enumeration.
func (s *source) values(spec *ast.ValueSpec, kind token.Token, pkg string) {
	if kind != token.CONST {
		return
	}
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			continue
		}
		s.constants[name.Name] = spec.Values[i]
		literal, ok := spec.Values[i].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue
		}
		of := ""
		switch typ := spec.Type.(type) {
		case *ast.Ident:
			of = pkg + "." + typ.Name
		case *ast.SelectorExpr:
			if from, ok := typ.X.(*ast.Ident); ok {
				of = from.Name + "." + typ.Sel.Name
			}
		}
		s.enums[of] = append(s.enums[of], enumValue{value, paragraph(spec.Comment)})
	}
}

// enum returns the values of a type, which may be declared in the domain's own package.
func (all sources) enum(t *testing.T, typ reflect.Type) []enumValue {
	t.Helper()
	if typ.PkgPath() == "" {
		return nil
	}
	name := typ.PkgPath()[strings.LastIndexByte(typ.PkgPath(), '/')+1:] + "." + typ.Name()
	values := slices.Clone(all.of(t, typ.PkgPath()).enums[name])
	for _, path := range domain {
		if path != typ.PkgPath() {
			values = append(values, all.of(t, path).enums[name]...)
		}
	}
	return values
}

// field returns the text of a field, for people who know only its JSON.
func (all sources) field(t *testing.T, typ reflect.Type, f reflect.StructField) string {
	t.Helper()
	holder := typ
	for _, i := range f.Index[:len(f.Index)-1] {
		holder = holder.Field(i).Type
		if holder.Kind() == reflect.Pointer {
			holder = holder.Elem()
		}
	}
	name, _, _ := strings.Cut(holder.Name(), "[")
	text := all.of(t, holder.PkgPath()).types[name].fields[f.Name]
	return all.say(t, holder, text)
}

// seeAlso is a reference in a comment to Go code, which readers of the JSON do not have.
var seeAlso = regexp.MustCompile(`[;,] see [A-Z]\w*(\.[A-Z]\w*)*| ?\bSee [A-Z]\w*(\.[A-Z]\w*)*\.`)

// bound matches the names of bounds, which readers of JSON get as numbers.
var bound = regexp.MustCompile(`^(Max|Min)[A-Z]`)

var identifier = regexp.MustCompile(`\b[A-Za-z_][A-Za-z0-9_]*(\.[A-Z][A-Za-z0-9_]*)?\b`)

// say replaces fields of a struct by their JSON names, and constants by their values.
func (all sources) say(t *testing.T, typ reflect.Type, text string) string {
	t.Helper()
	return identifier.ReplaceAllStringFunc(seeAlso.ReplaceAllString(text, ""), func(word string) string {
		if word == "nil" { // in Go, what JSON leaves out
			return "left out"
		}
		if typ.Kind() == reflect.Struct {
			if f, ok := typ.FieldByName(word); ok {
				if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
					return name
				}
			}
		}
		path, name := typ.PkgPath(), word
		if from, of, ok := strings.Cut(word, "."); ok {
			name = of
			path = module + "dispatcher/" + from
			if from == "dispatcher" {
				path = module + from
			}
		}
		if !ast.IsExported(name) {
			return word
		}
		for _, path := range append([]string{path}, domain...) {
			if expr := all.of(t, path).constants[name]; expr != nil {
				return cmp.Or(all.of(t, path).value(expr), word)
			}
		}
		if bound.MatchString(name) {
			t.Errorf("a comment of %s names %s, which is no constant", typ, word)
		}
		return word
	})
}

// value is the value of a constant, as in JSON; empty: unknown.
func (s *source) value(expr ast.Expr) string {
	if span, ok := s.duration(expr); ok {
		return strings.TrimSuffix(strings.TrimSuffix(span.String(), "0s"), "0m")
	}
	switch v := s.eval(expr); v.Kind() {
	case constant.String:
		return constant.StringVal(v)
	case constant.Int:
		return v.String()
	}
	return ""
}

// duration is that of a product with a unit of package time.
func (s *source) duration(expr ast.Expr) (time.Duration, bool) {
	units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	switch expr := expr.(type) {
	case *ast.SelectorExpr:
		unit, ok := units[expr.Sel.Name]
		return unit, ok
	case *ast.BinaryExpr:
		unit, ok := s.duration(expr.Y)
		count, exact := constant.Int64Val(constant.ToInt(s.eval(expr.X)))
		return time.Duration(count) * unit, ok && exact && expr.Op == token.MUL
	case *ast.CallExpr:
		if len(expr.Args) == 1 {
			return s.duration(expr.Args[0])
		}
	case *ast.Ident:
		if of := s.constants[expr.Name]; of != nil {
			return s.duration(of)
		}
	}
	return 0, false
}

func (s *source) eval(expr ast.Expr) constant.Value {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(expr.Value, expr.Kind, 0)
	case *ast.ParenExpr:
		return s.eval(expr.X)
	case *ast.Ident:
		if of := s.constants[expr.Name]; of != nil {
			return s.eval(of)
		}
	case *ast.BinaryExpr:
		x, y := s.eval(expr.X), s.eval(expr.Y)
		if x.Kind() != constant.Int || y.Kind() != constant.Int {
			return constant.MakeUnknown()
		}
		if expr.Op == token.SHL || expr.Op == token.SHR {
			by, _ := constant.Uint64Val(y)
			return constant.Shift(x, expr.Op, uint(by))
		}
		return constant.BinaryOp(x, expr.Op, y)
	}
	return constant.MakeUnknown()
}

// paragraph is the first paragraph of a comment, on one line.
func paragraph(comment *ast.CommentGroup) string {
	text, _, _ := strings.Cut(comment.Text(), "\n\n")
	return strings.Join(strings.Fields(text), " ")
}

// rules are the contents of the tag "schema" of a field, beyond its type.
type rules struct {
	ref              string // the form of a text, or of each text of a list or map
	key              string // the form of the keys of a map
	enum             []string
	required         bool
	min, max         *int64 // of a number, a length or a count
	eachMin, eachMax *int64 // of each element
	preset           string // a default that SetDefaults does not set, because an empty value means it
}

func parseRules(tag string) (r rules) {
	for rule := range strings.SplitSeq(tag, ",") {
		word, value, _ := strings.Cut(rule, "=")
		number := func() *int64 {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				panic("schema tag " + tag)
			}
			return &n
		}
		switch word {
		case "":
		case "required":
			r.required = true
		case "key":
			r.key = value
		case "enum":
			r.enum = strings.Split(value, "|")
		case "min":
			r.min = number()
		case "max":
			r.max = number()
		case "each_min":
			r.eachMin = number()
		case "each_max":
			r.eachMax = number()
		case "default":
			r.preset = value
		default:
			if value != "" {
				panic("schema tag " + tag)
			}
			r.ref = word
		}
	}
	return r
}

// defaultsOf returns a value with the defaults that decoding gives it.
func defaultsOf(typ reflect.Type) reflect.Value {
	v := reflect.New(typ)
	if with, ok := v.Interface().(interface{ SetDefaults() }); ok {
		with.SetDefaults()
	}
	return v.Elem()
}

// defaultOf is the default of a field, if it has one.
func (r rules) defaultOf(typ reflect.Type, value reflect.Value) (any, bool) {
	for typ.Kind() == reflect.Pointer {
		if value.IsNil() {
			return nil, false
		}
		typ, value = typ.Elem(), value.Elem()
	}
	switch typ.Kind() {
	case reflect.Bool:
		if r.preset != "" {
			return r.preset == "true", true
		}
		return value.Bool(), true
	case reflect.Int, reflect.Int64, reflect.String, reflect.Float64, reflect.Struct:
		if r.preset != "" {
			var number json.Number
			if json.Unmarshal([]byte(r.preset), &number) == nil && typ.Kind() != reflect.String {
				return number, true
			}
			return r.preset, true
		}
		if value.IsZero() || typ.Kind() == reflect.Struct && typ.Name() != "Duration" {
			return nil, false
		}
		return value.Interface(), true
	}
	return nil, false
}
