package api

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// openAPI is the part of openapi.json that the tests check.
type openAPI struct {
	OpenAPI string
	Paths   map[string]map[string]json.RawMessage
	Comp    struct {
		Parameters map[string]parameter
		Responses  map[string]json.RawMessage
		Headers    map[string]json.RawMessage
		Schemas    map[string]schema
		Security   map[string]json.RawMessage `json:"securitySchemes"`
	} `json:"components"`
}

type operation struct {
	OperationID string
	Summary     string
	Parameters  []parameter
	Security    *[]json.RawMessage
	Responses   map[string]json.RawMessage
}

type parameter struct {
	Ref  string `json:"$ref"`
	Name string
	In   string
}

type schema struct {
	Properties map[string]struct {
		ReadOnly bool
		MaxItems int
		Items    struct{ Enum []string }
	}
	Required []string
	Enum     []string
}

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	var doc openAPI
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	for _, problem := range decode.JSON(t.Context(), openAPIDocument, &struct{}{}) {
		if problem.Code == input.CodeJSONDuplicate {
			t.Fatal(problem)
		}
	}
	return doc
}

// resolve follows the reference of a parameter.
func (doc openAPI) resolve(t *testing.T, p parameter) parameter {
	t.Helper()
	if p.Ref == "" {
		return p
	}
	found, ok := doc.Comp.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
	if !ok {
		t.Errorf("no parameter %s", p.Ref)
	}
	return found
}

func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	t.Parallel()
	doc := readOpenAPI(t)
	var served, described []string
	ids := map[string]bool{}
	for _, rt := range routes {
		served = append(served, rt.Method+" "+rt.Path)
		var op operation
		if err := json.Unmarshal(doc.Paths[rt.Path][strings.ToLower(rt.Method)], &op); err != nil {
			t.Errorf("%s %s: %v", rt.Method, rt.Path, err)
			continue
		}
		if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" || len(op.Responses) == 0 {
			t.Errorf("%s %s has operationId %q, summary %q, %d responses", rt.Method, rt.Path, op.OperationID, op.Summary, len(op.Responses))
		}
		ids[op.OperationID] = true
		served := rt.Scope == "" && !rt.Executors
		if open := op.Security != nil && len(*op.Security) == 0; open != served {
			t.Errorf("%s %s: described as open %v, served as open %v", rt.Method, rt.Path, open, served)
		}
		var shared []parameter
		_ = json.Unmarshal(doc.Paths[rt.Path]["parameters"], &shared)
		var inPath, inQuery []string
		for _, p := range append(shared, op.Parameters...) {
			switch p = doc.resolve(t, p); p.In {
			case "path":
				inPath = append(inPath, "{"+p.Name+"}")
			case "query":
				inQuery = append(inQuery, p.Name)
			}
		}
		var wildcards []string
		for segment := range strings.SplitSeq(rt.Path, "/") {
			if strings.HasPrefix(segment, "{") {
				wildcards = append(wildcards, segment)
			}
		}
		if !slices.Equal(wildcards, inPath) || !slices.Equal(rt.Query, inQuery) {
			t.Errorf("%s %s: described with %v %v, served with %v %v", rt.Method, rt.Path, inPath, inQuery, wildcards, rt.Query)
		}
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("routes (-served +described):\n%s", diff)
	}
}

func TestOpenAPISchemasMatchTypes(t *testing.T) {
	t.Parallel()
	doc := readOpenAPI(t)
	types := map[string]reflect.Type{
		"App": reflect.TypeFor[access.App](), "Bounds": reflect.TypeFor[target.Bounds](),
		"JobDefaults": reflect.TypeFor[dispatcher.JobDefaults](),
		"Quotas":      reflect.TypeFor[target.Quotas](), "EgressBounds": reflect.TypeFor[target.EgressBounds](),
		"LambdaBounds": reflect.TypeFor[target.LambdaBounds](), "SQSBounds": reflect.TypeFor[target.SQSBounds](),
		"SNSBounds": reflect.TypeFor[target.SNSBounds](), "SQS": reflect.TypeFor[target.SQS](),
		"SNS": reflect.TypeFor[target.SNS](), "SignatureBound": reflect.TypeFor[target.SignatureBound](),
		"Usage": reflect.TypeFor[target.Usage](), "Breaks": reflect.TypeFor[access.Breaks](),
		"BreakJob": reflect.TypeFor[access.BreakJob](), "BreakAlert": reflect.TypeFor[access.BreakAlert](),
		"Job": reflect.TypeFor[dispatcher.Job](), "Target": reflect.TypeFor[target.Target](),
		"Follow":           reflect.TypeFor[dispatcher.Follow](),
		"DeadLetterReplay": reflect.TypeFor[repeat.DeadLetterReplay](), "DeadLetterCount": reflect.TypeFor[repeat.DeadLetterCount](),
		"Replayed": reflect.TypeFor[repeat.Replayed](), "RunRef": reflect.TypeFor[run.Ref](),
		"Retry": reflect.TypeFor[run.Retry](), "Lambda": reflect.TypeFor[target.Lambda](),
		"AssumeRole": reflect.TypeFor[target.AssumeRole](), "Calendar": reflect.TypeFor[dispatcher.Calendar](),
		"CalendarRule": reflect.TypeFor[schedule.CalendarRule](),
		"Alert":        reflect.TypeFor[alert.Alert](), "AlertList": reflect.TypeFor[list[alert.Alert]](),
		"AlertFailures": reflect.TypeFor[alert.Failures](), "AlertMuteWindow": reflect.TypeFor[alert.MuteWindow](),
		"AlertMute": reflect.TypeFor[alert.Mute](), "AlertDestination": reflect.TypeFor[target.AlertDestination](),
		"AlertTopic":   reflect.TypeFor[target.AlertTopic](),
		"AlertWebhook": reflect.TypeFor[target.AlertWebhook](), "AlertState": reflect.TypeFor[alert.State](),
		"AcknowledgedAlert": reflect.TypeFor[alert.AcknowledgedAlert](), "AlertDelivery": reflect.TypeFor[alert.Delivery](),
		"AlertAcknowledgement": reflect.TypeFor[alert.Acknowledgement](), "AlertWithdrawal": reflect.TypeFor[alertWithdrawal](),
		"AlertEvent": reflect.TypeFor[alert.Event](), "AlertStateList": reflect.TypeFor[list[alert.State]](),
		"AlertEventList": reflect.TypeFor[list[alert.Event]](),
		"EndpointGroup":  reflect.TypeFor[target.EndpointGroup](), "EndpointGroupList": reflect.TypeFor[list[target.EndpointGroup]](),
		"StaticEndpoint": reflect.TypeFor[target.StaticEndpoint](), "Registration": reflect.TypeFor[target.Registration](),
		"Probe": reflect.TypeFor[target.Probe](), "GroupTarget": reflect.TypeFor[target.GroupTarget](),
		"Endpoint": reflect.TypeFor[target.Endpoint](), "EndpointList": reflect.TypeFor[list[target.Endpoint]](),
		"DNSMembers": reflect.TypeFor[target.DNSMembers](), "HealthCheck": reflect.TypeFor[target.HealthCheck](),
		"GroupStatus": reflect.TypeFor[target.GroupStatus](), "DNSStatus": reflect.TypeFor[target.DNSStatus](),
		"EndpointStatus": reflect.TypeFor[target.EndpointStatus](),
		"CalendarList":   reflect.TypeFor[list[dispatcher.Calendar]](),
		"Webhook":        reflect.TypeFor[target.Webhook](), "Trigger": reflect.TypeFor[dispatcher.Trigger](),
		"Signing": reflect.TypeFor[target.Signing](), "Secret": reflect.TypeFor[target.Secret](),
		"Auth":      reflect.TypeFor[target.Auth](),
		"BasicAuth": reflect.TypeFor[target.BasicAuth](), "BearerAuth": reflect.TypeFor[target.BearerAuth](),
		"APIKeyAuth": reflect.TypeFor[target.APIKeyAuth](), "SigV4Auth": reflect.TypeFor[target.SigV4Auth](),
		"OAuth2Auth":     reflect.TypeFor[target.OAuth2Auth](),
		"AWSCredentials": reflect.TypeFor[target.AWSCredentials](), "TLS": reflect.TypeFor[target.TLS](),
		"CallbackState": reflect.TypeFor[run.CallbackState](), "CallbackReply": reflect.TypeFor[run.CallbackReply](),
		"CallbackPolicy": reflect.TypeFor[target.CallbackPolicy](), "CallbackEnd": reflect.TypeFor[callbackFailure](),
		"CallbackCompletion": reflect.TypeFor[callbackCompletion](), "CarriedState": reflect.TypeFor[run.CarriedState](),
		"Objective": reflect.TypeFor[dispatcher.Objective](), "ObjectiveStatus": reflect.TypeFor[dispatcher.ObjectiveStatus](),
		"ObjectiveStatusList": reflect.TypeFor[list[dispatcher.ObjectiveStatus]](),
		"CallbackHeartbeat":   reflect.TypeFor[callbackHeartbeat](),
		"Response":            reflect.TypeFor[run.Response](), "Phases": reflect.TypeFor[run.Phases](),
		"Run": reflect.TypeFor[run.Run](), "Attempt": reflect.TypeFor[run.Attempt](),
		"Outcome":    reflect.TypeFor[run.Outcome](),
		"JobSummary": reflect.TypeFor[dispatcher.JobSummary](), "JobSummaryList": reflect.TypeFor[list[dispatcher.JobSummary]](),
		"TargetSummary": reflect.TypeFor[target.TargetSummary](), "RunSummary": reflect.TypeFor[dispatcher.RunSummary](),
		"Attention": reflect.TypeFor[view.Attention](), "OverdueTrigger": reflect.TypeFor[view.OverdueTrigger](),
		"SilentGroup": reflect.TypeFor[view.SilentGroup](), "CredentialFailure": reflect.TypeFor[view.CredentialFailure](),
		"EndingCertificate": reflect.TypeFor[view.EndingCertificate](), "LateRetention": reflect.TypeFor[view.LateRetention](),
		"QuarantinedTrigger": reflect.TypeFor[view.QuarantinedTrigger](), "OpenCircuit": reflect.TypeFor[view.OpenCircuit](),
		"StandingPause": reflect.TypeFor[view.StandingPause](), "NodeAttention": reflect.TypeFor[view.NodeAttention](),
		"SetAside":      reflect.TypeFor[dispatcher.SetAside](),
		"UpcomingFires": reflect.TypeFor[view.UpcomingFires](),
		"Misfire":       reflect.TypeFor[dispatcher.Misfire](), "Node": reflect.TypeFor[dispatcher.Node](),
		"PauseRequest": reflect.TypeFor[dispatcher.PauseRequest](), "AppPauseRequest": reflect.TypeFor[dispatcher.AppPauseRequest](),
		"AppPause": reflect.TypeFor[dispatcher.AppPause](), "AppPauseList": reflect.TypeFor[list[dispatcher.AppPause]](),
		"JobRename":   reflect.TypeFor[dispatcher.JobRename](),
		"Problem":     reflect.TypeFor[input.Problem](),
		"MissedRange": reflect.TypeFor[run.MissedRange](),
		"BulkFilter":  reflect.TypeFor[repeat.BulkFilter](), "BulkRequest": reflect.TypeFor[repeat.BulkRequest](),
		"BulkCount": reflect.TypeFor[repeat.BulkCount](), "BulkAction": reflect.TypeFor[repeat.BulkAction](),
		"BulkActionList":  reflect.TypeFor[list[repeat.BulkAction]](),
		"BackfillRequest": reflect.TypeFor[repeat.BackfillRequest](), "Backfill": reflect.TypeFor[repeat.Backfill](),
		"BackfillCount": reflect.TypeFor[repeat.BackfillCount](), "BackfillList": reflect.TypeFor[list[repeat.Backfill]](),
		"RunRequest": reflect.TypeFor[dispatcher.RunRequest](),
		"RunCause":   reflect.TypeFor[run.Cause](),
		"Shard":      reflect.TypeFor[run.Shard](), "ShardCounts": reflect.TypeFor[run.ShardCounts](),
		"Slot": reflect.TypeFor[dispatcher.Slot](), "SlotList": reflect.TypeFor[list[dispatcher.Slot]](),
		"PreviewRequest": reflect.TypeFor[view.PreviewRequest](), "Preview": reflect.TypeFor[view.Preview](),
		"AppList": reflect.TypeFor[list[access.App]](), "JobList": reflect.TypeFor[list[dispatcher.Job]](),
		"RunList": reflect.TypeFor[list[run.Run]](), "MisfireList": reflect.TypeFor[list[dispatcher.Misfire]](),
		"Explanation": reflect.TypeFor[verify.Explanation](), "Step": reflect.TypeFor[verify.Step](),
		"Strip": reflect.TypeFor[view.Strip](), "StripCell": reflect.TypeFor[view.StripCell](),
		"Timeline": reflect.TypeFor[view.Timeline](), "TimelineRow": reflect.TypeFor[view.TimelineRow](),
		"TimelineMark": reflect.TypeFor[view.TimelineMark](), "Statistics": reflect.TypeFor[view.Statistics](),
		"DayStatistics": reflect.TypeFor[view.DayStatistics](), "ShownRequest": reflect.TypeFor[target.ShownRequest](),
		"ShownHeader": reflect.TypeFor[target.ShownHeader](),
		"VerifyPage":  reflect.TypeFor[verify.Page](), "TriggerVerification": reflect.TypeFor[verify.Trigger](),
		"Discrepancy": reflect.TypeFor[verify.Discrepancy](), "Leak": reflect.TypeFor[dispatcher.Leak](),
		"ZoneData": reflect.TypeFor[dispatcher.ZoneData](), "ZoneStatus": reflect.TypeFor[dispatcher.ZoneStatus](),
		"NodeZones": reflect.TypeFor[dispatcher.NodeZones](),
		"Rollback":  reflect.TypeFor[dispatcher.Rollback](), "ServerVersion": reflect.TypeFor[dispatcher.ServerVersion](),
		"Token": reflect.TypeFor[access.APIToken](), "IssuedToken": reflect.TypeFor[access.IssuedToken](),
		"TokenRotation": reflect.TypeFor[access.TokenRotation](), "TokenList": reflect.TypeFor[list[access.APIToken]](),
		"Export": reflect.TypeFor[access.Export](), "ExportedJob": reflect.TypeFor[access.ExportedJob](),
		"ExportedTrigger": reflect.TypeFor[dispatcher.ExportedTrigger](), "ExportedRun": reflect.TypeFor[access.ExportedRun](),
		"AuditEntry": reflect.TypeFor[access.AuditEntry](), "AuditEntryList": reflect.TypeFor[list[access.AuditEntry]](),
		"ExecutorLog": reflect.TypeFor[target.ExecutorLog](), "XXLJobRun": reflect.TypeFor[target.XXLJobRun](),
		"ExecutorReply": reflect.TypeFor[executorReply](), "ExecutorResult": reflect.TypeFor[executorResult](),
		"ExecutorRegistration": reflect.TypeFor[registry](),
		"NodeList":             reflect.TypeFor[list[dispatcher.Node]](), "ProblemDocument": reflect.TypeFor[problemDocument](),
	}
	for name, described := range doc.Comp.Schemas {
		if _, known := types[name]; !known && len(described.Properties) > 0 {
			t.Errorf("schema %s is not compared with a type", name)
		}
	}
	for name, typ := range types {
		described := doc.Comp.Schemas[name]
		fields := decode.Fields(typ)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(described.Properties))); diff != "" {
			t.Errorf("%s (-type +schema):\n%s", name, diff)
		}
		var marked []string
		for field, property := range described.Properties {
			if property.ReadOnly {
				marked = append(marked, field)
			}
		}
		slices.Sort(marked)
		maps.DeleteFunc(fields, func(_ string, f decode.Field) bool { return !f.ReadOnly })
		if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), marked); diff != "" {
			t.Errorf("read-only fields of %s (-ignored +described):\n%s", name, diff)
		}
		for _, field := range described.Required {
			if _, ok := described.Properties[field]; !ok {
				t.Errorf("%s requires %s, which it does not have", name, field)
			}
		}
	}
}

func TestOpenAPIReferencesExist(t *testing.T) {
	t.Parallel()
	var doc any
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(doc)
	all := readOpenAPI(t).Comp
	there := map[string]bool{}
	for _, section := range []struct {
		name string
		keys []string
	}{
		{"parameters", slices.Collect(maps.Keys(all.Parameters))}, {"responses", slices.Collect(maps.Keys(all.Responses))},
		{"headers", slices.Collect(maps.Keys(all.Headers))}, {"schemas", slices.Collect(maps.Keys(all.Schemas))},
	} {
		for _, key := range section.keys {
			there["#/components/"+section.name+"/"+key] = true
		}
	}
	if diff := cmp.Diff(there, used); diff != "" {
		t.Errorf("components (-there +referred to):\n%s", diff)
	}
}

func TestOpenAPIEnumsMatchConstants(t *testing.T) {
	t.Parallel()
	schemas := readOpenAPI(t).Comp.Schemas
	for name, file := range map[string]string{
		"Class": "../run/run.go", "Dialect": "../schedule/spec.go", "Gap": "../schedule/spec.go", "Overlap": "../schedule/spec.go",
		"OnExcluded": "../schedule/calendar.go", "Verdict": "../verify/explain.go", "Scope": "../access/token.go",
		"DiscrepancyKind": "../verify/verify.go",
	} {
		described := slices.DeleteFunc(slices.Sorted(slices.Values(schemas[name].Enum)), func(s string) bool { return s == "" })
		if diff := cmp.Diff(constants(t, file, strings.TrimSuffix(name, "Kind")), described); diff != "" {
			t.Errorf("values of %s (-constants +described):\n%s", name, diff)
		}
	}
	var states []string
	for _, s := range run.States {
		states = append(states, string(s))
	}
	if diff := cmp.Diff(states, schemas["RunState"].Enum); diff != "" {
		t.Errorf("run states (-domain +described):\n%s", diff)
	}
	var strategies []string
	for _, s := range target.Strategies {
		strategies = append(strategies, string(s))
	}
	if diff := cmp.Diff(strategies, schemas["Strategy"].Enum); diff != "" {
		t.Errorf("strategies (-domain +described):\n%s", diff)
	}
	var conditions []string
	for _, c := range target.AlertConditions {
		conditions = append(conditions, string(c))
	}
	if diff := cmp.Diff(conditions, schemas["AlertCondition"].Enum); diff != "" {
		t.Errorf("conditions of alerts (-domain +described):\n%s", diff)
	}
	codes := append(constants(t, "../input/code.go", "Code"), constants(t, "../input/code.go", "Warn")...)
	slices.Sort(codes)
	var rows []string
	for _, row := range input.Codes {
		rows = append(rows, row.Code)
	}
	if diff := cmp.Diff(codes, rows); diff != "" {
		t.Errorf("codes (-constants +rows):\n%s", diff)
	}
	if diff := cmp.Diff(rows, slices.Sorted(slices.Values(schemas["Code"].Enum))); diff != "" {
		t.Errorf("codes (-rows +described):\n%s", diff)
	}
}

func TestAcknowledgeListsTheCodesOfWarnings(t *testing.T) {
	t.Parallel()
	described := readOpenAPI(t).Comp.Schemas["Job"].Properties["acknowledge"]
	if diff := cmp.Diff(dispatcher.WarningCodes, described.Items.Enum); diff != "" || described.MaxItems != len(dispatcher.WarningCodes) {
		t.Errorf("at most %d codes (-domain +described):\n%s", described.MaxItems, diff)
	}
	listed := slices.Sorted(slices.Values(schedule.WarningCodes))
	if diff := cmp.Diff(slices.Sorted(slices.Values(constants(t, "../input/code.go", "Warn"))), listed); diff != "" {
		t.Errorf("codes of warnings (-constants +listed):\n%s", diff)
	}
}

func TestEachStatusOfACodeHasItsPlace(t *testing.T) {
	t.Parallel()
	for _, row := range input.Codes {
		invalid, warning := row.Status == http.StatusUnprocessableEntity, row.Status == 0
		if !invalid && !warning && !slices.Contains(precedence, row.Status) {
			t.Errorf("%s has status %d, which no place among the statuses decides about", row.Code, row.Status)
		}
		if warning != slices.Contains(schedule.WarningCodes, row.Code) {
			t.Errorf("%s has status %d; warnings have 0, problems have one", row.Code, row.Status)
		}
	}
}

// constants returns the values of the string constants of a file whose names begin with prefix.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if strings.HasPrefix(name.Name, prefix) && i < len(spec.Values) {
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
					value, _ := strconv.Unquote(literal.Value)
					values = append(values, value)
				}
			}
		}
		return true
	})
	slices.Sort(values)
	return values
}
