package provider_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// counted returns the different warnings of a plan in order, each with its count. It omits the
// names of the shops, because Terraform's order varies.
func counted(t *testing.T, output string) string {
	t.Helper()
	times := map[string]int{}
	var all []string
	text := regexp.MustCompile(`shop-\d\d`).ReplaceAllString(warningsOf(t, output), "shop-NN")
	for warning := range strings.SplitSeq(text, "Warning: ") {
		if warning = strings.TrimSpace(warning); warning == "" {
			continue
		}
		if times[warning]++; times[warning] == 1 {
			all = append(all, warning)
		}
	}
	slices.Sort(all)
	for i, warning := range all {
		all[i] = fmt.Sprintf("%d times:\nWarning: %s\n", times[warning], warning)
	}
	return strings.Join(all, "\n")
}

// A story: 60 jobs of one block; "make bench" has 1,000. Warnings about all of them are shown for a
// few jobs and counted, when the jobs are planned, and when all their schedules change. The one job whose fires change
// in another way is shown, whenever Terraform plans it.
func TestStoryWarningsOfManyJobsAreCounted(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		const dir = "testdata/many_jobs/"
		main := contents(t, dir+"main.tf")
		d := f.directory(t, main, providerBlock(""))
		output := d.must(t, "plan", "-out=saved.plan")
		mustSay(t, output, "Plan: 61 to add, 0 to change, 0 to destroy.")
		golden(t, dir+"planned.txt", counted(t, output))
		mustSay(t, d.must(t, "apply", "saved.plan"), "61 added, 0 changed, 0 destroyed")
		mustChangeNothing(t, d)

		changed := strings.Replace(main, "hour = 2", "hour = 4", 1)
		d.rewrite(t, strings.Replace(changed, `"0 30 $`, `"0 ${each.key == "shop-41" ? 45 : 30} $`, 1))
		output = d.must(t, "plan")
		mustSay(t, output, "Plan: 0 to add, 60 to change, 0 to destroy.")
		mustSay(t, output, "Warning: Fires change: shops/shop-41")
		golden(t, dir+"changed.txt", counted(t, output))
	})
}
