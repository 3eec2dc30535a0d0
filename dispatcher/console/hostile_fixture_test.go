package console_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// checked are the fields by which pages find objects, or whose form the API checks: they keep their values.
var checked = map[string]bool{
	"AuditEntry.ID": true, "Endpoint.ID": true, "EndpointStatus.ID": true,
}

// notShown are the fields that no page shows as text.
var notShown = map[string]bool{
	"SlotWait.Run": true, // the run of the fixture is held for another reason
	// They are only in addresses, or the address of the page has them.
	"APIToken.ID": true, "Alert.App": true, "Backfill.App": true, "BulkAction.App": true, "Calendar.App": true,
	"EndpointGroup.App": true, "Explanation.App": true, "Explanation.Job": true, "Explanation.Trigger": true, "Job.App": true,
	"Job.Name": true, "RunSummary.ID": true, "ShownRequest.Run": true, "Strip.App": true, "Strip.Job": true,
	"Strip.Trigger": true, "StripCell.Run": true, "Timeline.Next": true, "TimelineMark.Run": true,
	"TimelineMark.Trigger": true,
	// The API and the Terraform of a definition have them.
	"MuteWindow.Schedule": true, "MuteWindow.Timezone": true,
	"AppStatus.AWSExternalID": true, "BackfillSpec.Payload": true, "BreakAlert.Alert": true, "BreakJob.Job": true,
	"CalendarRule.ICalendar": true, "CarriedState.DiscardedRun": true, "CarriedState.Run": true, "DNSMembers.Labels": true,
	"DNSMembers.Labels[]": true,
	"DNSMembers.Hostname": true, "DNSMembers.Scheme": true, "Endpoint.ServerName": true, "EndpointGroupSpec.DNS[]": true,
	"EndpointGroupSpec.Endpoints[]": true, "EndpointGroupSpec.Path": true, "EndpointGroupSpec.ServerName": true,
	"JobDefaults.Headers": true, "JobDefaults.Headers[]": true, "JobDefaults.Timezone": true, "LambdaBounds.Roles": true,
	"Node.APIAddresses": true, "Probe.AlivePath": true, "Probe.IdlePath": true, "Reach.AWSRegion": true, "Reach.EgressPrivate": true,
	"Reach.VaultAddress":   true,
	"Run.WaitsForEndpoint": true, "SNSBounds.Roles": true, "SQSBounds.Roles": true,
	"SignatureBound.Hosts": true, "SignatureBound.Service": true, "StandingPause.Labels": true, "StandingPause.Labels[]": true,
	"StaticEndpoint.Labels": true, "StaticEndpoint.Labels[]": true, "StripCell.Why": true, "XXLJobSettings.AppName": true,
}

// filler writes a text into every string of a value that the API may respond with, and makes missing parts.
type filler struct {
	text   func(field string) string
	fields map[string]string     // the written texts, by fields such as "Run.Error"
	within map[reflect.Type]bool // the types on the way, which may contain themselves
}

// fill fills a value that can be set. A named type of strings has fixed values, which the API checks.
func (f *filler) fill(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			f.fields[field] = f.text(field)
			v.SetString(f.text(field))
		}
	case reflect.Pointer:
		if v.IsNil() {
			if f.within[v.Type().Elem()] {
				return
			}
			v.Set(reflect.New(v.Type().Elem()))
		}
		f.fill(v.Elem(), field)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			written := raw(f.text(field))
			f.fields[field] = string(written)
			v.SetBytes(written)
			return
		}
		if v.Len() == 0 && !f.within[v.Type().Elem()] {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			f.fill(v.Index(i), field)
		}
	case reflect.Map:
		f.fillMap(v, field)
	case reflect.Struct:
		f.fillStruct(v)
	default: // numbers and switches hold no text
	}
}

// fillStruct fills the fields in the JSON.
func (f *filler) fillStruct(v reflect.Value) {
	of := v.Type()
	if of == reflect.TypeFor[time.Time]() {
		if v.IsZero() {
			v.Set(reflect.ValueOf(fixedAt))
		}
		return
	}
	if f.within[of] {
		return
	}
	f.within[of] = true
	defer delete(f.within, of)
	for i := range of.NumField() {
		field := of.Field(i)
		if field.IsExported() && field.Tag.Get("json") != "-" && !checked[of.Name()+"."+field.Name] {
			f.fill(v.Field(i), of.Name()+"."+field.Name)
		}
	}
}

// fillMap fills the values of a map, and its keys if they may be any text.
func (f *filler) fillMap(v reflect.Value, field string) {
	of := v.Type()
	filled := reflect.MakeMap(of)
	keys := v.MapKeys()
	if len(keys) == 0 {
		keys = []reflect.Value{reflect.New(of.Key()).Elem()}
	}
	for _, key := range keys {
		value := reflect.New(of.Elem()).Elem()
		if at := v.MapIndex(key); at.IsValid() {
			value.Set(at)
		}
		f.fill(value, field)
		if of.Key() == reflect.TypeFor[string]() && len(keys) == 1 && !checked[field+"[]"] {
			f.fields[field+"[]"] = f.text(field + "[]")
			key = reflect.ValueOf(f.text(field + "[]"))
		}
		filled.SetMapIndex(key, value)
	}
	v.Set(filled)
}

// raw is a JSON string as the API writes it.
func raw(text string) json.RawMessage {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can be encoded
	return json.RawMessage(strings.TrimSpace(b.String()))
}

// filled returns responses with a text in every field, and the fields.
func filled(t *testing.T, responses map[string]any, text func(string) string) (map[string]any, map[string]string) {
	t.Helper()
	f := &filler{text: text, fields: map[string]string{}, within: map[reflect.Type]bool{}}
	all := map[string]any{}
	for request, response := range responses {
		if list, is := response.(map[string]any); is && list["items"] != nil {
			of := reflect.ValueOf(list["items"])
			items := reflect.New(of.Type()).Elem()
			items.Set(reflect.AppendSlice(reflect.MakeSlice(of.Type(), 0, of.Len()), of))
			f.fill(items, "")
			all[request] = map[string]any{"items": items.Interface(), "next": list["next"]}
			continue
		}
		if strings.HasSuffix(request, "/explain") {
			var found verify.Explanation
			if text, err := json.Marshal(response); err != nil || json.Unmarshal(text, &found) != nil {
				t.Fatalf("%s: %v", request, err)
			}
			response = found
		}
		copied := reflect.New(reflect.TypeOf(response)).Elem()
		copied.Set(reflect.ValueOf(response))
		f.fill(copied, "")
		keepNames(copied, reflect.ValueOf(response))
		all[request] = copied.Interface()
	}
	return all, f.fields
}

// keepNames restores the names by which an object is requested: the client refuses an object of another name.
func keepNames(filled, original reflect.Value) {
	for _, name := range []string{"ID", "App", "Name", "Job", "Trigger", "Run"} {
		if field := original.FieldByName(name); field.IsValid() && field.Kind() == reflect.String {
			filled.FieldByName(name).Set(field)
		}
	}
}
