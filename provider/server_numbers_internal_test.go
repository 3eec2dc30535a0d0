package provider

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
)

func TestNumbersOfAStateBecomeText(t *testing.T) {
	t.Parallel()
	given := map[string]any{
		"text": "5", "none": nil, "yes": true, "list": []any{1, "a", 128, 70000, -1, -200, -40000},
		"map": map[string]any{"least": int64(math.MinInt64), "most": uint64(math.MaxUint64), "fraction": 0.5, "empty": map[string]any{}},
	}
	want := map[string]any{
		"text": "5", "none": nil, "yes": true, "list": []any{"1", "a", "128", "70000", "-1", "-200", "-40000"},
		"map": map[string]any{
			"least": "-9223372036854775808", "most": "18446744073709551615", "fraction": "0.5", "empty": map[string]any{},
		},
	}
	in, err := msgpack.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := numbersAsText(msgpack.NewDecoder(bytes.NewReader(in)), msgpack.NewEncoder(&out), &out); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := msgpack.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}
