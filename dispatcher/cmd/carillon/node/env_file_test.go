package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnvFileIsReadAsSystemdReadsIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"a plain value":                       {"A=b", "b"},
		"no value":                            {"A=\n", ""},
		"blanks around a value":               {" A= b c \t\r\n", "b c"},
		"an equals sign in a value":           {"A=b=c", "b=c"},
		"a number sign in a value":            {"A=b #c", "b #c"},
		"an escaped blank at the end":         {`A=b\ `, "b "},
		"an escaped character":                {`A=b\c\\`, `bc\`},
		"a continued line":                    {"A=b\\\nc", "bc"},
		"quotes inside a value":               {`A=b"c"`, `b"c"`},
		"single quotes":                       {`A=' b\c" '`, ` b\c" `},
		"single quotes over lines":            {"A='b\nc'\n", "b\nc"},
		"double quotes":                       {`A=" b 'c' " `, " b 'c' "},
		"escapes in double quotes":            {`A="\"\\\$\` + "`" + `\n"`, `"\$` + "`" + `\n`},
		"a continued line in double quotes":   {"A=\"b\\\nc\"", "bc"},
		"comments, empty lines, then a value": {"# A=1\n ; A=2\n\n \t\nA=b", "b"},
		"lines that end as on Windows":        {"A=b\r\n", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseEnvFile("f", tt.text)
			if err != nil || len(got) != 1 || got[0].name != "A" || got[0].value != tt.want {
				t.Errorf("parse %q: got %+v, %v, want A=%q", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestEnvFileNamesAllProblemsWithTheirLines(t *testing.T) {
	t.Parallel()
	text := strings.Join([]string{
		"CARILLON_APPS=a", "", `SECRET_A='x`, `y'`, "nothing", "export B=hunter2", "1C=hunter2", "D =hunter2", `E="a" hunter2`,
		"CARILLON_APPS=hunter2", `F=a\`, `b`, "also nothing", `G="hunter2`, "",
	}, "\n")
	_, err := parseEnvFile("carillon.env", text)
	if err == nil {
		t.Fatal("no problem was found")
	}
	want := []string{
		"carillon.env:5: this line assigns nothing; write NAME=value, or begin a comment with #",
		"carillon.env:6: leave out export: this is no shell script",
		`carillon.env:7: "1C" is not the name of a variable; write NAME=value without blanks before the =`,
		`carillon.env:8: "D " is not the name of a variable; write NAME=value without blanks before the =`,
		"carillon.env:9: there is text after the closing quote; put all of the value between the quotes",
		"carillon.env:10: CARILLON_APPS is set on line 1, too; keep one of them",
		"carillon.env:13: this line assigns nothing; write NAME=value, or begin a comment with #",
		`carillon.env:14: the value that begins with " has no end`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("problems differ (-want +got):\n%s", diff)
	}
}

// envFile writes a file of settings and returns its variable.
