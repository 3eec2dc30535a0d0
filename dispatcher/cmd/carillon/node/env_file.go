package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

const (
	// defaultEnvFile holds the settings of a machine, for its service and for all commands.
	defaultEnvFile = "/etc/carillon/carillon.env"
	// envFileVariable names another file; an empty value means no file.
	envFileVariable = "CARILLON_ENV_FILE"
)

// LoadFile sets the variables of the machine's settings that the environment lacks. It returns the
// path of a file that this user may not read, which is no problem as long as no setting is missing.
func (v Variables) LoadFile() (unreadable string, err error) {
	path, named := envFilePath()
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
	case named:
		return "", fmt.Errorf("%s: %w", envFileVariable, err)
	case errors.Is(err, fs.ErrPermission):
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	default:
		return "", err
	}
	settings, err := parseEnvFile(path, string(text))
	if err != nil {
		return "", err
	}
	for _, s := range settings {
		if v.isSet(s.name) {
			continue
		}
		if err := os.Setenv(s.name, s.value); err != nil {
			return "", fmt.Errorf("%s:%d: %s: %w", path, s.line, s.name, err)
		}
	}
	return "", nil
}

// envFilePath returns the path of the settings, which may be empty, and whether the environment sets it.
func envFilePath() (path string, named bool) {
	if path, named = os.LookupEnv(envFileVariable); !named {
		path = defaultEnvFile
	}
	return path, named
}

// assignment is an assignment in the file, on one or more lines.
type assignment struct {
	name, value string
	line        int
}

// envReader reads the file as systemd reads an EnvironmentFile, but refuses lines that systemd would skip or guess.
type envReader struct {
	path, rest string
	line       int
	problems   []error
}

// parseEnvFile reads all assignments, and reports all problems with their lines. A message never shows a value.
func parseEnvFile(path, text string) ([]assignment, error) {
	r := envReader{path: path, rest: strings.ReplaceAll(text, "\r\n", "\n"), line: 1}
	var found []assignment
	first := map[string]int{}
	for r.rest != "" {
		at := r.line
		name, ok := r.name()
		if !ok {
			continue
		}
		value, ok := r.value()
		if !ok {
			continue
		}
		if before := first[name]; before != 0 {
			r.problem(at, "%s is set on line %d, too; keep one of them", name, before)
			continue
		}
		first[name] = at
		found = append(found, assignment{name, value, at})
	}
	return found, errors.Join(r.problems...)
}

func (r *envReader) problem(line int, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s:%d: "+format, append([]any{r.path, line}, args...)...))
}

// skipLine drops the rest of the line and returns it.
func (r *envReader) skipLine() string {
	line, rest, found := strings.Cut(r.rest, "\n")
	r.rest = rest
	if found {
		r.line++
	}
	return line
}

// name reads up to the "=". It skips a line without an assignment.
func (r *envReader) name() (name string, ok bool) {
	line, _, _ := strings.Cut(r.rest, "\n")
	trimmed := strings.TrimLeft(line, " \t")
	if strings.TrimSpace(line) == "" || trimmed[0] == '#' || trimmed[0] == ';' {
		r.skipLine()
		return "", false
	}
	name, _, assigned := strings.Cut(trimmed, "=")
	switch {
	case !assigned:
		r.problem(r.line, "this line assigns nothing; write NAME=value, or begin a comment with #")
	case strings.HasPrefix(name, "export "):
		r.problem(r.line, "leave out export: this is no shell script")
	case !variableName.MatchString(name):
		r.problem(r.line, "%q is not the name of a variable; write NAME=value without blanks before the =", name)
	default:
		r.rest = r.rest[strings.IndexByte(r.rest, '=')+1:]
		return name, true
	}
	r.skipLine()
	return "", false
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// value reads the text after the "=", and the end of the line.
func (r *envReader) value() (value string, ok bool) {
	r.rest = strings.TrimLeft(r.rest, " \t\r")
	if r.rest != "" && (r.rest[0] == '\'' || r.rest[0] == '"') {
		return r.quoted(r.rest[0])
	}
	var b strings.Builder
	keep := 0 // the length of the value without blanks at its end
	for i := 0; i < len(r.rest); i++ {
		switch c := r.rest[i]; {
		case c == '\n':
			r.rest = r.rest[i:]
			r.skipLine()
			return b.String()[:keep], true
		case c == '\\' && i+1 < len(r.rest):
			i++
			if r.rest[i] == '\n' { // the value continues on the next line
				r.line++
				continue
			}
			b.WriteByte(r.rest[i])
			keep = b.Len()
		default:
			b.WriteByte(c)
			if c != ' ' && c != '\t' && c != '\r' {
				keep = b.Len()
			}
		}
	}
	r.rest = ""
	return b.String()[:keep], true
}

// quoted reads a value in quotes, which may span lines.
func (r *envReader) quoted(quote byte) (value string, ok bool) {
	began := r.line
	var b strings.Builder
	for i := 1; i < len(r.rest); i++ {
		c := r.rest[i]
		switch {
		case c == quote:
			r.rest = r.rest[i+1:]
			at := r.line
			if more := strings.TrimSpace(r.skipLine()); more != "" {
				r.problem(at, "there is text after the closing quote; put all of the value between the quotes")
				return "", false
			}
			return b.String(), true
		case c == '\\' && quote == '"' && i+1 < len(r.rest) && strings.IndexByte("\"\\`$\n", r.rest[i+1]) >= 0:
			i++
			if c = r.rest[i]; c == '\n' {
				r.line++
				continue
			}
		case c == '\n':
			r.line++
		}
		b.WriteByte(c)
	}
	r.rest = ""
	r.problem(began, "the value that begins with %c has no end", quote)
	return "", false
}
