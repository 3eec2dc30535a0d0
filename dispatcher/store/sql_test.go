package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/migrations"
)

// A statement that writes a run or its slots by key also names the job, so no key leads to a run of another job.
func TestWritesByTheKeyOfARunNameItsJob(t *testing.T) {
	t.Parallel()
	write := regexp.MustCompile(`(UPDATE|DELETE FROM) (live_runs|runs|slots)\b`)
	byKey := regexp.MustCompile(`\btrigger_id = \$[0-9]`)
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "storetest") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			literal, is := node.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || !write.MatchString(text) || !byKey.MatchString(text) {
				return true
			}
			if seen++; !strings.Contains(text, "job_id ") {
				t.Errorf("%s: this statement names no job: %s", set.Position(literal.Pos()), text)
			}
			return true
		})
	}
	if seen < 5 {
		t.Errorf("%d statements were looked at, want those of callbacks, broadcasts, slots, imports and runs that are set aside", seen)
	}
}

// An unchecked table may belong to another role, and then its first query fails in the middle of work.
func TestOwnersOfAllTablesAreChecked(t *testing.T) {
	t.Parallel()
	created := regexp.MustCompile(`(?m)^CREATE TABLE (\w+) \(`)
	scripts, err := fs.Glob(migrations.Postgres, "postgres/*.sql")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	for _, script := range scripts {
		text, err := fs.ReadFile(migrations.Postgres, script)
		if err != nil {
			t.Fatal(err)
		}
		tables := created.FindAllSubmatch(text, -1)
		if len(tables) == 0 {
			t.Errorf("%s creates no table, as far as this test sees", script)
		}
		for _, table := range tables {
			if name := string(table[1]); !strings.Contains(store.ForeignTables, "'"+name+"'") {
				t.Errorf("nobody looks who owns table %s; add it to foreignTables", name)
			}
		}
	}
}

// sqlToken is a quoted text, a name or number, or a sign.
var sqlToken = regexp.MustCompile(`'[^']*'|[A-Za-z_0-9$.]+|::|[<>=!|]+|->>|.`)

// clauses begin a new line.
var clauses = []string{
	"SELECT", "FROM", "WHERE", "JOIN", "LEFT", "CROSS", "ORDER", "LIMIT", "INSERT", "UPDATE", "DELETE", "SET", "VALUES",
	"ON", "RETURNING", "UNION", "FOR", "AND", "OR",
}

// width is the maximum width of a line, and short that of a query on one line.
const (
	width = 100
	short = 60
)

// layout is a statement during its layout.
type layout struct {
	tokens []string
	lines  []string
	line   []string // tokens, each with the space before it
	margin int      // of the line, in steps
	levels []level  // the open parentheses
}

// level is a pair of parentheses: a query on its own lines, or not.
type level struct {
	query bool
	cases int // open CASEs in it
}

// laidOut returns a statement with one clause a line.
func laidOut(statement string) string {
	l := layout{
		tokens: sqlToken.FindAllString(strings.ReplaceAll(strings.Join(strings.Fields(statement), " "), "( ", "("), -1),
		levels: []level{{query: true}},
	}
	for i, token := range l.tokens {
		if token == " " {
			continue
		}
		space := ""
		if i > 0 && l.tokens[i-1] == " " {
			space = " "
		}
		l.add(i, space, token)
	}
	l.end()
	return strings.Join(l.lines, "\n") + "\n"
}

// add lays out the token at an index.
func (l *layout) add(i int, space, token string) {
	at := &l.levels[len(l.levels)-1]
	switch {
	case token == "(":
		l.line = append(l.line, space+token)
		query := l.long(i)
		l.levels = append(l.levels, level{query: query})
		if query {
			l.end()
		}
		return
	case token == ")":
		l.levels = l.levels[:len(l.levels)-1]
		if at.query {
			l.end()
		}
	case token == "CASE":
		at.cases++
	case token == "END":
		at.cases--
	case at.query && at.cases == 0 && l.begins(token):
		l.end()
	}
	l.line = append(l.line, space+token)
	if token == "," && len(l.levels) == 1 && len(l.line) == 2 && l.line[0] == ")" {
		l.end() // between common table expressions
	}
}

// long reports whether the parenthesis at an index begins a query that does not fit on a line.
func (l *layout) long(open int) bool {
	depth, length := 0, 0
	for _, token := range l.tokens[open:] {
		length += len(token)
		switch token {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 {
			break
		}
	}
	first := l.tokens[open+1]
	return length > short && slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, first)
}

// begins reports whether a word begins a clause at this place.
func (l *layout) begins(word string) bool {
	last := ""
	if len(l.line) > 0 {
		last = strings.TrimSpace(l.line[len(l.line)-1])
	}
	switch {
	case !slices.Contains(clauses, word):
		return false
	case word == "JOIN" && (last == "LEFT" || last == "CROSS"):
		return false
	case word == "UPDATE" && (last == "DO" || last == "FOR" || last == "KEY"):
		return false
	case word == "FROM" && (last == "DISTINCT" || last == "DELETE"):
		return false
	case word == "SET" && last == "UPDATE":
		return false
	case word == "ON":
		return !slices.ContainsFunc(l.line, func(t string) bool { return strings.TrimSpace(t) == "JOIN" })
	}
	return true
}

// end ends a line, continues it on others if it is too long, and begins the next.
func (l *layout) end() {
	margin, line, start := strings.Repeat("  ", l.margin), "", 0
	if len(l.line) > 0 {
		if first := strings.TrimSpace(l.line[0]); first == "AND" || first == "OR" {
			margin += "  "
		}
	}
	for i, token := range l.line {
		if l.breaks(i) {
			piece := token
			for k := i + 1; k < len(l.line) && !l.breaks(k); k++ {
				piece += l.line[k]
			}
			if len(margin)+len(line)-start+len(piece) > width {
				line += "\n" + margin
				start = len(line) - len(margin) - 4
				line, token = line+"    ", token[1:]
			}
		}
		line += token
	}
	if line = strings.TrimSpace(line); line != "" {
		l.lines = append(l.lines, margin+line)
	}
	l.line, l.margin = nil, 0
	for _, level := range l.levels[1:] {
		if level.query {
			l.margin++
		}
	}
}

// breaks reports whether a line may be broken before the token at an index.
func (l *layout) breaks(i int) bool {
	token := l.line[i]
	return i > 0 && token[0] == ' ' && (l.line[i-1] == "," || slices.Contains([]string{" CASE", " WHEN", " ELSE"}, token))
}
