package provider

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
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
	state := &tfprotov6.DynamicValue{MsgPack: in}
	if err := numbersAsText(state); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := msgpack.Unmarshal(state.MsgPack, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}
