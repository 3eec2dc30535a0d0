package provider

import (
	"reflect"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/provider/binding"
)

// readOnly are fields of the domain without an attribute, in one type or in all, with the reason.
var readOnly = map[string]string{
	"created_at": "of no use in Terraform", "updated_at": "of no use in Terraform", "warnings": "plans show them",
	"paused": "operators pause", "paused_by": "operators pause", "paused_at": "operators pause", "pause_reason": "operators pause",
	"paused_until": "operators pause", "Job.pauses": "operators pause", "AppPause.app": "it is in its app", "AppPause.pending": "for the API",
	"Job.origin": "the API keeps it", "Trigger.origin": "the API keeps it", "Trigger.anchor_at": "the API keeps it",
	"Trigger.counted_from": "the API keeps it", "Trigger.fired": "the API counts", "Trigger.due_at": "it is next_fire_time with jitter",
	"Secret.stored": "it stands for what Terraform does not know", "Target.alert": "no job has it",
	"AlertWebhook.callback": "a notification is delivered once its receiver responds",
	"Bounds.suspended_by":   "the audit log has it", "Bounds.suspended_at": "the audit log has it", "App.usage": "it changes all the time",
	"App.breaks": "an apply shows it", "App.importing": "for the API", "Calendar.removal_requested_at": "it counts as deleted",
	"EndpointGroup.removal_requested_at": "it counts as deleted",
}

// TestEveryFieldOfADefinitionHasARow finds fields of the API that the provider lacks.
func TestEveryFieldOfADefinitionHasARow(t *testing.T) {
	t.Parallel()
	used, tokens := map[string]bool{}, map[*binding.Rows]map[string]bool{}
	for _, kind := range []*binding.Rows{jobRows, alertRows, groupRows, appRows, calendarRows} {
		kind.Walk(func(in *binding.Rows, a binding.Placed) {
			if tokens[in] == nil {
				tokens[in] = map[string]bool{}
			}
			tokens[in][a.Token] = true
		})
	}
	for in, has := range tokens {
		of := reflect.TypeOf(in.Fresh()).Elem()
		for _, name := range forgotten(of, "", has) {
			field := of.Name() + "." + name
			used[field], used[name] = true, true
			if readOnly[field]+readOnly[name] == "" {
				t.Errorf("%s.%s has no row: give it one, or say in readOnly why it is no attribute", of, name)
			}
		}
	}
	for field := range readOnly {
		if !used[field] {
			t.Errorf("readOnly has %s, which is a row or no field", field)
		}
	}
}

// forgotten returns the JSON names of a struct's fields without a token; at is the pointer of the struct.
func forgotten(of reflect.Type, at string, tokens map[string]bool) (missing []string) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		below := func() bool {
			for token := range tokens {
				if strings.HasPrefix(token, at+name+"/") {
					return true
				}
			}
			return false
		}
		switch {
		case field.Anonymous && name == "":
			missing = append(missing, forgotten(kind, at, tokens)...)
		case !field.IsExported() || name == "-" || tokens[at+name]:
		case below():
			missing = append(missing, forgotten(kind, at+name+"/", tokens)...)
		default:
			missing = append(missing, at+name)
		}
	}
	return missing
}
