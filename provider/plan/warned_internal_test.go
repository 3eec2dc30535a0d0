package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// In whatever order Terraform plans jobs, the warnings shown in full include those of the nearest
// days. The number of warnings in full for one day is limited.
func TestNearestWarningsAreShownInFullInAnyOrder(t *testing.T) {
	t.Parallel()
	const jobs, inFull = 200, 3
	random := rand.New(rand.NewPCG(1, 2))
	for _, days := range []int{1, 2, 7, 200} {
		for range 50 {
			seen := newWarned("")
			var all, shown []string
			for _, i := range random.Perm(jobs) {
				day := fmt.Sprintf("2030-%03d", i%days)
				full, first := seen.first("dst", fmt.Sprint(i), day, inFull)
				if !first {
					t.Fatalf("job %d was told before", i)
				}
				if all = append(all, day); full {
					shown = append(shown, day)
				}
			}
			slices.Sort(all)
			slices.Sort(shown)
			if !slices.Equal(shown[:inFull], all[:inFull]) {
				t.Fatalf("%d days: %v are told in full, want the nearest three among them: %v", days, shown, all[:inFull])
			}
			if most := inFull * days; len(shown) > most {
				t.Errorf("%d days: %d are told in full, want at most %d", days, len(shown), most)
			}
			if full, first := seen.first("dst", "0", "2029-001", inFull); full || first {
				t.Error("a warning is told twice")
			}
		}
	}
}
