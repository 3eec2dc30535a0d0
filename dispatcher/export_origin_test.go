package dispatcher_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Two jobs or triggers with one origin would send the same event ids.
func TestExportRefusesWrongOrigins(t *testing.T) {
	t.Parallel()
	one := func(name, origin string, triggers map[string]string) access.ExportedJob {
		j := job(minutely)
		j.Name = name
		exported := access.ExportedJob{Job: j, Origin: origin, Triggers: map[string]dispatcher.ExportedTrigger{}}
		trigger := j.Triggers["t"]
		exported.Job.Triggers = map[string]dispatcher.Trigger{}
		for name, origin := range triggers {
			exported.Job.Triggers[name] = trigger
			exported.Triggers[name] = dispatcher.ExportedTrigger{Origin: origin, State: dispatcher.TriggerWaiting, AnchorAt: exportedAt}
		}
		return exported
	}
	for name, tt := range map[string]struct {
		jobs []access.ExportedJob
		want []string
	}{
		"swapped names": {[]access.ExportedJob{
			one("a", "b", map[string]string{"x": "y", "y": "x"}), one("b", "a", nil)}, nil},
		"reused names": {[]access.ExportedJob{
			one("a", "a~2", map[string]string{"x": "x~12", "y": ""}), one("b", "a", nil)}, nil},
		"two jobs of one origin": {[]access.ExportedJob{one("a", "", nil), one("b", "a", nil)}, []string{"/jobs/1/origin name_mismatch"}},
		"two triggers of one origin": {[]access.ExportedJob{one("a", "", map[string]string{"x": "", "y": "x"})},
			[]string{"/jobs/0/triggers/y/origin name_mismatch"}},
		"invalid origins": {[]access.ExportedJob{one("a", "A", map[string]string{"x": "x~", "y": "y~2~2"})},
			[]string{"/jobs/0/origin name_format", "/jobs/0/triggers/x/origin name_format", "/jobs/0/triggers/y/origin name_format"}},
	} {
		export := access.Export{Format: access.ExportFormat, Installation: "i", ExportedAt: exportedAt,
			App: access.App{Name: "crm"}, Jobs: tt.jobs}
		var problems input.Problems
		errors.As(export.Validate(), &problems)
		var got []string
		for _, p := range problems {
			got = append(got, p.Path+" "+p.Code)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s%v", name, diff, problems)
		}
	}
}
