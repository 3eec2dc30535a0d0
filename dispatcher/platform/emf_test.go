package platform_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/platform"
)

func TestEMFLineHasTheDocumentedForm(t *testing.T) {
	t.Parallel()
	format := platform.EMF{
		Namespace: "Carillon", Dimensions: map[string]string{"Fleet": "production"},
		Properties: map[string]string{"node": "node-1", "version": "1.2.3"},
	}
	line, err := format.Line(time.UnixMilli(1_790_000_060_123), []platform.Metric{
		{Name: "Nodes", Unit: platform.Count, Value: 1}, {Name: "PoolUse", Unit: platform.Percent, Value: 12.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(line), "\n") != 1 || line[len(line)-1] != '\n' {
		t.Errorf("%q is not one line", line)
	}
	var got any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"_aws": map[string]any{
			"Timestamp": 1_790_000_060_123.0,
			"CloudWatchMetrics": []any{map[string]any{
				"Namespace": "Carillon", "Dimensions": []any{[]any{"Fleet"}},
				"Metrics": []any{
					map[string]any{"Name": "Nodes", "Unit": "Count"},
					map[string]any{"Name": "PoolUse", "Unit": "Percent"},
				},
			}},
		},
		"Fleet": "production", "node": "node-1", "version": "1.2.3", "Nodes": 1.0, "PoolUse": 12.5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("the line (-want +got):\n" + diff)
	}
}

func TestEMFLineRefusesWhatCloudWatchWouldDrop(t *testing.T) {
	t.Parallel()
	many := func(n int) (metrics []platform.Metric) {
		for i := range n {
			metrics = append(metrics, platform.Metric{Name: fmt.Sprint("M", i), Unit: platform.Count})
		}
		return metrics
	}
	for name, tt := range map[string]struct {
		format  platform.EMF
		metrics []platform.Metric
		says    string
	}{
		"100 metrics":           {platform.EMF{}, many(100), ""},
		"101 metrics":           {platform.EMF{}, many(101), "101 metrics"},
		"no metric":             {platform.EMF{}, nil, "0 metrics"},
		"an invalid value":      {platform.EMF{}, []platform.Metric{{Name: "M", Value: math.NaN()}}, "metric M"},
		"an infinite value":     {platform.EMF{}, []platform.Metric{{Name: "M", Value: math.Inf(1)}}, "metric M"},
		"two of one name":       {platform.EMF{}, []platform.Metric{{Name: "M"}, {Name: "M"}}, `"M"`},
		"a property's name":     {platform.EMF{Properties: map[string]string{"M": ""}}, []platform.Metric{{Name: "M"}}, `"M"`},
		"the directive's name":  {platform.EMF{}, []platform.Metric{{Name: "_aws"}}, `"_aws"`},
		"no name":               {platform.EMF{}, []platform.Metric{{}}, `""`},
		"a dimension, no value": {platform.EMF{Dimensions: map[string]string{"Fleet": ""}}, many(1), "dimension Fleet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.format.Line(time.UnixMilli(0), tt.metrics)
			if got := errorText(err); (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
				t.Errorf("error %q, want one with %q", got, tt.says)
			}
		})
	}
}

func TestDimensionIsValidForCloudWatch(t *testing.T) {
	t.Parallel()
	for value, says := range map[string]string{
		"production": "", "a b/c:d#1": "", strings.Repeat("x", 1024): "",
		"": "empty", "  ": "empty", ":prod": "colon", "münchen": "ASCII", "a\nb": "ASCII", strings.Repeat("x", 1025): "1025 bytes",
	} {
		if got := errorText(platform.CheckDimension(value)); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%.20q: error %q, want one with %q", value, got, says)
		}
	}
}
