package provider_test

import (
	"encoding/base64"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/need"
)

// A story: a job with secrets that only the API stores. A plan shows that a secret exists and that a new version
// is sent, but never its value. Neither the output of Terraform, nor its plan, state and log contain a value.
func TestStorySecretsAreRotatedByVersionAndShownNowhere(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		const dir = "testdata/secrets/"
		main := contents(t, dir+"main.tf")
		d := f.directory(t, main, providerBlock(""))
		log := filepath.Join(d.path, "terraform.log")
		values := func(canary string) directory {
			signing := base64.StdEncoding.EncodeToString([]byte(canary + " 0123456789 0123456789"))
			return d.with("TF_VAR_signing=whsec_"+signing, "TF_VAR_token="+canary, "TF_LOG=TRACE", "TF_LOG_PATH="+log)
		}
		stores := func(canary string) {
			t.Helper()
			got := f.stored(t)
			delete(got, "current") // the API has checked its format
			if diff := cmp.Diff(map[string]string{"next": "env:SECRET_CRM_NEXT", "token": canary}, got); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		}
		first, second := values("CANARY1"), values("CANARY2")

		printed := first.must(t, "plan", "-out=saved.plan")
		golden(t, f.client.file(dir+"created.txt"), planOf(t, printed))
		printed += first.must(t, "show", "-json", "saved.plan") + first.must(t, "apply", "saved.plan")
		stores("CANARY1")
		mustChangeNothing(t, second) // another value without another version
		stores("CANARY1")

		main = strings.ReplaceAll(main, "value_version = 1", "value_version = 2")
		d.rewrite(t, main)
		plan := second.must(t, "plan", "-out=saved.plan")
		golden(t, f.client.file(dir+"rotated.txt"), planOf(t, plan))
		printed += plan + second.must(t, "show", "-json", "saved.plan") + second.must(t, "apply", "saved.plan")
		stores("CANARY2")

		value := regexp.MustCompile(`value +(= var.token)\s+value_version = 2`)
		d.rewrite(t, value.ReplaceAllString(main, "value $1\nreference = \"env:SECRET_CRM_TOKEN\""))
		refused := second.mustFail(t, []string{"plan"})
		golden(t, dir+"refused.txt", errorsOf(refused))
		d.rewrite(t, value.ReplaceAllString(main, `reference = "env:SECRET_CRM_TOKEN"`))
		plan = second.must(t, "plan")
		golden(t, f.client.file(dir+"referenced.txt"), planOf(t, plan))
		printed += refused + plan + second.must(t, "apply", "-auto-approve")
		stores("env:SECRET_CRM_TOKEN") // and no longer the value

		printed += second.must(t, "state", "pull") + second.must(t, "show", "-json")
		mustNotHold(t, "the output of terraform", printed)
		for name, text := range files(t, d.path) {
			mustNotHold(t, name, text)
		}
		if text := contents(t, log); !strings.Contains(text, "[TRACE]") || !strings.Contains(text, "carillon_job.nightly") {
			t.Errorf("the log does not trace what Terraform does: %.200s", text)
		}
	})
}
