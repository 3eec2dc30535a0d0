package input_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestUnstorableJSONTextIsFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{}`:                                    nil,
		`"\ud83d\ude00 \\u0000 \\ud800 \u0001"`: nil,
		`"\u0000"`:                              {" string_nul"},
		`{"a":{"b/c":["x","y\u0000"]}}`:         {"/a/b~1c/1 string_nul"},
		`{"a":1,"b":"\ud800"}`:                  {"/b json_utf8"},
		`{"a":1e308,"b":-1.5e-999,"c":9007199254740993,"d":0.1}`: nil,
		`{"a":1e999}`:                                       {"/a json_number"},
		`[-1e999999999]`:                                    {"/0 json_number"},
		`{"a":["1e999",{"b":1E+309}]}`:                      {"/a/1/b json_number"},
		strings.Repeat("9", 310):                            {" json_number"},
		"0." + strings.Repeat("3", 1022):                    nil,
		"0." + strings.Repeat("3", 1023):                    {" json_number"},
		`{"a":"\udc00"}`:                                    {"/a json_utf8"},
		`{"a":"\uD83D\uD83D\uDE00"}`:                        {"/a json_utf8"},
		`{"a":"\ud83d\ude00\ude00"}`:                        {"/a json_utf8"},
		`{"a":"\ud83dx\ude00"}`:                             {"/a json_utf8"},
		`{"a":"\ud83d\n\u0000"}`:                            {"/a string_nul", "/a json_utf8"},
		`[{"k\u0000":1},2,["\udfff"]]`:                      {"/0/k\x00 string_nul", "/2/0 json_utf8"},
		`{"a":["\"\u0000"],"b":"\\\u0000","c":"\\\\u0000"}`: {"/a/0 string_nul", "/b string_nul"},
	} {
		var problems input.Problems
		errors.As(input.CheckJSONText([]byte(text), 10), &problems)
		var got []string
		for _, p := range problems {
			got = append(got, p.Path+" "+p.Code)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	many := `[` + strings.Repeat(`"\u0000",`, 1000) + `0]`
	if n := len(input.CheckJSONText([]byte(many), 10).(input.Problems)); n != 10 { //nolint:errorlint,forcetypeassert // a test
		t.Errorf("1000 wrong strings give %d problems, want the 10 that were asked for", n)
	}
}

// FuzzCheckJSONText compares with encoding/json, which replaces half a pair by U+FFFD.
func FuzzCheckJSONText(f *testing.F) {
	f.Add(`\ud800`)
	f.Add(`\ud83d\ude00\u0000`)
	f.Add(`\\ud800\ud83d\ud83d\ude00`)
	f.Fuzz(func(t *testing.T, inner string) {
		text := []byte(`{"k":["` + inner + `"]}`)
		var decoded struct{ K []string }
		if !utf8.Valid(text) || strings.ContainsAny(inner, "\"\ufffd") || strings.Contains(strings.ToLower(inner), `\ufffd`) ||
			json.Unmarshal(text, &decoded) != nil || len(decoded.K) != 1 {
			return
		}
		want := strings.ContainsAny(decoded.K[0], "\x00\ufffd")
		if err := input.CheckJSONText(text, 10); (err != nil) != want {
			t.Errorf("%q, which is decoded as %q: %v", text, decoded.K[0], err)
		}
	})
}
