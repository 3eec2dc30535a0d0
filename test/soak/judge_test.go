package main

import (
	"strings"
	"testing"
)

// good returns figures that reach every bar.
func good() figures {
	var all figures
	for _, b := range bars() {
		if b.absolute {
			all.add(b.figure, "count", b.most)
		} else {
			all.compare(b.figure, "ms", 10*b.most, 10)
		}
	}
	return all
}

func TestFiguresAtTheirBarsPass(t *testing.T) {
	t.Parallel()
	if missed := judge(good(), false); len(missed) > 0 {
		t.Errorf("missed %v", missed)
	}
}

func TestEachMissedBarIsReported(t *testing.T) {
	t.Parallel()
	for _, b := range bars() {
		t.Run(b.figure, func(t *testing.T) {
			t.Parallel()
			all := good()
			for i := range all {
				if all[i].Name != b.figure {
					continue
				}
				all[i].Old++
				if !b.absolute {
					all[i].Ratio = some(b.most * 1.01)
				}
			}
			missed := judge(all, false)
			if len(missed) != 1 || !strings.HasPrefix(missed[0].Error(), b.subject+" is ") {
				t.Errorf("got %v, want one sentence about %s", missed, b.subject)
			}
			if inShort := judge(all, true); len(inShort) == 1 == b.whole {
				t.Errorf("a short run says %v; it judges counts and not speed", inShort)
			}
		})
	}
}

func TestMissingFigureMissesItsBar(t *testing.T) {
	t.Parallel()
	if missed := judge(nil, false); len(missed) != len(bars()) {
		t.Errorf("%d bars missed, want all %d", len(missed), len(bars()))
	}
	all := good()
	for i := range all {
		all[i].Ratio = nil
	}
	if missed := judge(all, false); len(missed) == 0 {
		t.Error("figures without a ratio reach their bars")
	}
}

func TestRatioIsTheMedianOfTheRounds(t *testing.T) {
	t.Parallel()
	var all figures
	all.inTurns("cost", "ms", []float64{2, 30, 4}, []float64{1, 10, 4})
	one, _ := all.find("cost")
	if one.Old != 4 || *one.Young != 4 || *one.Ratio != 2 {
		t.Errorf("got %v and %v, ratio %v; want 4 and 4, ratio 2", one.Old, *one.Young, *one.Ratio)
	}
}
