package provider

import (
	"context"
	"math/big"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// jobModel is a carillon_job as configuration, plan and state hold it. Target and triggers
// are Terraform values and not structs, because any of them may be unknown at plan.
type jobModel struct {
	ID                types.String    `tfsdk:"id"`
	App               types.String    `tfsdk:"app"`
	Name              types.String    `tfsdk:"name"`
	Description       types.String    `tfsdk:"description"`
	Enabled           types.Bool      `tfsdk:"enabled"`
	Priority          types.Number    `tfsdk:"priority"`
	Delivery          types.String    `tfsdk:"delivery"`
	ConcurrencyPolicy types.String    `tfsdk:"concurrency_policy"`
	MaxConcurrency    types.Number    `tfsdk:"max_concurrency"`
	QueueLimit        types.Number    `tfsdk:"queue_limit"`
	Retry             types.Object    `tfsdk:"retry"`
	DeleteAfter       text[durations] `tfsdk:"delete_after_completion"`
	NodeLabels        types.Map       `tfsdk:"node_labels"`
	Target            types.Object    `tfsdk:"target"`
	Payload           text[documents] `tfsdk:"payload"`
	Triggers          types.Map       `tfsdk:"triggers"`
	State             types.String    `tfsdk:"state"`
	Revision          types.Int64     `tfsdk:"revision"`
	NextFireTimes     types.Map       `tfsdk:"next_fire_times"`
}

type targetModel struct {
	Webhook types.Object `tfsdk:"webhook"`
	Lambda  types.Object `tfsdk:"lambda"`
}

type triggerModel struct {
	Expression    types.String    `tfsdk:"expression"`
	Dialect       types.String    `tfsdk:"dialect"`
	Timezone      types.String    `tfsdk:"timezone"`
	StartAt       text[instants]  `tfsdk:"start_at"`
	EndAt         text[instants]  `tfsdk:"end_at"`
	RepeatCount   types.Number    `tfsdk:"repeat_count"`
	Gap           types.String    `tfsdk:"gap"`
	Overlap       types.String    `tfsdk:"overlap"`
	DriftHour     types.Bool      `tfsdk:"drift_hour"`
	Calendar      types.String    `tfsdk:"calendar"`
	OnExcluded    types.String    `tfsdk:"on_excluded"`
	Jitter        text[durations] `tfsdk:"jitter"`
	MisfireAfter  text[durations] `tfsdk:"misfire_after"`
	MisfirePolicy types.String    `tfsdk:"misfire_policy"`
	CatchUpWindow text[durations] `tfsdk:"catch_up_window"`
	Enabled       types.Bool      `tfsdk:"enabled"`
}

// readJob returns the job that a model describes.
func readJob(ctx context.Context, read *reader, m jobModel) dispatcher.Job {
	var job dispatcher.Job
	job.SetDefaults()
	job.App = read.text("/app", m.App)
	job.Name = read.text("/name", m.Name)
	job.Description = read.text("/description", m.Description)
	job.Enabled = read.bool("/enabled", m.Enabled, job.Enabled)
	job.Priority = read.whole("/priority", m.Priority, dispatcher.CodeCountRange, "give a priority from 0 to 9")
	if !m.Delivery.IsNull() {
		readWord(read, "/delivery", m.Delivery, &job.Delivery)
	}
	job.Retry = readRetry(ctx, read, m.Retry)
	readConcurrency(read, m, &job)
	readDeleteAfter(read, m, &job)
	job.NodeLabels = readStrings(read, "/node_labels", m.NodeLabels)
	job.Target = readTarget(ctx, read, m.Target)
	job.Payload = []byte(read.text("/payload", m.Payload))
	if !m.Payload.IsNull() && !m.Payload.IsUnknown() && len(job.Payload) == 0 {
		read.problems.Add("/payload", dispatcher.CodeJSONSyntax, "payload is empty, which is no JSON; leave it out")
	}
	job.Triggers = map[string]dispatcher.Trigger{}
	if read.unknown("/triggers", m.Triggers) {
		return job
	}
	for name, element := range m.Triggers.Elements() {
		pointer := dispatcher.Pointer("triggers", name)
		object, _ := element.(types.Object)
		if object.IsNull() {
			read.problems.Add(pointer, dispatcher.CodeRequired, "trigger %s is null; leave it out of the map", dispatcher.Echo(name))
		}
		t := readTrigger(ctx, read, pointer, object)
		if (m.App.IsUnknown() || m.Name.IsUnknown()) && schedule.UsesHash(t.Expression) {
			read.unknown(pointer+"/expression", types.StringUnknown()) // H hashes both names
		}
		job.Triggers[name] = t
	}
	return job
}

func readTarget(ctx context.Context, read *reader, object types.Object) dispatcher.Target {
	var m targetModel
	if !read.object(ctx, "/target", object, &m) {
		return dispatcher.Target{}
	}
	if m.Webhook.IsUnknown() || m.Lambda.IsUnknown() { // whether there is exactly one
		read.partial = append(read.partial, "/target/webhook", "/target/lambda")
	}
	return dispatcher.Target{
		Webhook: readWebhook(ctx, read, "/target/webhook", m.Webhook), Lambda: readLambda(ctx, read, "/target/lambda", m.Lambda),
	}
}

// readStrings reads a map of texts; nil where there is nothing to read.
func readStrings(read *reader, pointer string, m types.Map) map[string]string {
	if read.unknown(pointer, m) || m.IsNull() {
		return nil
	}
	texts := map[string]string{}
	for name, element := range m.Elements() {
		value, _ := element.(types.String)
		at := pointer + dispatcher.Pointer(name)
		if value.IsNull() {
			read.problems.Add(at, dispatcher.CodeRequired, "%s is null; leave it out of the map", dispatcher.Echo(name))
		}
		texts[name] = read.text(at, value)
	}
	return texts
}

func readTrigger(ctx context.Context, read *reader, pointer string, object types.Object) dispatcher.Trigger {
	var t dispatcher.Trigger
	t.SetDefaults()
	var m triggerModel
	if !read.object(ctx, pointer, object, &m) {
		return t
	}
	t.Expression = read.required(pointer+"/expression", m.Expression)
	readWord(read, pointer+"/dialect", m.Dialect, &t.Dialect)
	if m.Dialect.IsUnknown() {
		read.unknown(pointer+"/expression", m.Dialect) // what it means hangs on the dialect
	}
	readWord(read, pointer+"/timezone", m.Timezone, &t.Timezone)
	if m.Timezone.IsUnknown() {
		t.Timezone = "UTC" // without any, a local instant would be at fault
	}
	t.StartAt = read.instant(pointer+"/start_at", m.StartAt)
	t.EndAt = read.instant(pointer+"/end_at", m.EndAt)
	t.RepeatCount = read.whole(pointer+"/repeat_count", m.RepeatCount, schedule.CodeRepeatRange, "give how many times the trigger fires, or 0 for no limit")
	readWord(read, pointer+"/gap", m.Gap, &t.Gap)
	readWord(read, pointer+"/overlap", m.Overlap, &t.Overlap)
	t.DriftHour = read.bool(pointer+"/drift_hour", m.DriftHour, false)
	readWord(read, pointer+"/calendar", m.Calendar, &t.Calendar)
	if m.Calendar.IsUnknown() {
		read.unknown(pointer+"/on_excluded", m.Calendar) // without a calendar it would be at fault
	}
	readWord(read, pointer+"/on_excluded", m.OnExcluded, &t.OnExcluded)
	t.Jitter = read.duration(pointer+"/jitter", m.Jitter, 0)
	t.MisfireAfter = read.duration(pointer+"/misfire_after", m.MisfireAfter, t.MisfireAfter)
	if m.MisfireAfter.IsUnknown() {
		read.unknown(pointer+"/catch_up_window", m.MisfireAfter) // whose least it is
	}
	if !m.MisfirePolicy.IsNull() {
		readWord(read, pointer+"/misfire_policy", m.MisfirePolicy, &t.MisfirePolicy)
	}
	t.CatchUpWindow = read.duration(pointer+"/catch_up_window", m.CatchUpWindow, t.CatchUpWindow)
	if t.CatchUpWindow == 0 {
		read.problems.Add(pointer+"/catch_up_window", dispatcher.CodeDurationMin, "duration 0s is less than misfire_after, so nothing would be caught up; for that, set misfire_policy to skip")
	}
	t.Enabled = read.bool(pointer+"/enabled", m.Enabled, t.Enabled)
	return t
}

// readWord reads a text whose empty value the domain keeps for "left out".
func readWord[S ~string](read *reader, pointer string, v types.String, field *S) {
	*field = S(read.text(pointer, v))
	if !v.IsNull() && !v.IsUnknown() && *field == "" {
		read.problems.Add(pointer, dispatcher.CodeRequired, "text is empty; leave it out for the default")
	}
}

// word is the inverse of readWord.
func word[S ~string](value S) types.String {
	if value == "" {
		return types.StringNull()
	}
	return types.StringValue(string(value))
}

// newJobModel returns the model of a job that the API answered. prior is the plan or state
// that it replaces: an empty map of headers is not told from none on the wire, so it stays
// as it was written.
func newJobModel(ctx context.Context, job dispatcher.Job, prior jobModel) (jobModel, diag.Diagnostics) {
	var diags diag.Diagnostics
	m := jobModel{
		ID:          types.StringValue(job.App + "/" + job.Name),
		App:         types.StringValue(job.App),
		Name:        types.StringValue(job.Name),
		Description: types.StringValue(job.Description),
		Enabled:     types.BoolValue(job.Enabled),
		Priority:    types.NumberValue(big.NewFloat(float64(job.Priority))),
		Delivery:    types.StringValue(string(job.Delivery)),
		Retry:       newRetry(ctx, &diags, job.Retry, prior.Retry),
		NodeLabels:  newStrings(ctx, &diags, job.NodeLabels, prior.NodeLabels),
		Target:      newTarget(ctx, &diags, job.Target, prior.Target),
		Payload:     text[documents]{types.StringNull()},
		State:       types.StringValue(string(job.State)),
		Revision:    types.Int64Value(job.Revision),
	}
	m.setConcurrency(job)
	m.setDeleteAfter(job)
	if len(job.Payload) > 0 {
		m.Payload = newText[documents](string(job.Payload))
	}
	triggers, next := map[string]triggerModel{}, map[string]timetypes.RFC3339{}
	for name, t := range job.Triggers {
		triggers[name] = newTriggerModel(t)
		if t.NextFireTime != nil {
			next[name] = timetypes.NewRFC3339TimeValue(t.NextFireTime.UTC())
		}
	}
	m.Triggers = mapFrom(ctx, &diags, triggersType().ElemType, triggers)
	m.NextFireTimes = mapFrom(ctx, &diags, timetypes.RFC3339Type{}, next)
	return m, diags
}

func newTarget(ctx context.Context, diags *diag.Diagnostics, target dispatcher.Target, prior types.Object) types.Object {
	var before targetModel
	(&reader{}).object(ctx, "", prior, &before)
	return objectFrom(ctx, diags, targetType(), targetModel{
		Webhook: newWebhook(ctx, diags, target.Webhook, before.Webhook), Lambda: newLambda(ctx, diags, target.Lambda, before.Lambda),
	})
}

// newStrings makes a map of texts. Without any it is null, unless prior was an empty map: the
// two are not told apart on the wire.
func newStrings(ctx context.Context, diags *diag.Diagnostics, texts map[string]string, prior types.Map) types.Map {
	switch {
	case len(texts) > 0:
		return mapFrom(ctx, diags, types.StringType, texts)
	case prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0:
		return types.MapNull(types.StringType)
	}
	return mapFrom(ctx, diags, types.StringType, map[string]string{})
}

func newTriggerModel(t dispatcher.Trigger) triggerModel {
	return triggerModel{
		Expression:    types.StringValue(t.Expression),
		Dialect:       word(t.Dialect),
		Timezone:      word(t.Timezone),
		StartAt:       newInstant(t.StartAt),
		EndAt:         newInstant(t.EndAt),
		RepeatCount:   types.NumberValue(big.NewFloat(float64(t.RepeatCount))),
		Gap:           word(t.Gap),
		Overlap:       word(t.Overlap),
		DriftHour:     types.BoolValue(t.DriftHour),
		Calendar:      word(t.Calendar),
		OnExcluded:    word(t.OnExcluded),
		Jitter:        newText[durations](formatDuration(t.Jitter)),
		MisfireAfter:  newText[durations](formatDuration(t.MisfireAfter)),
		MisfirePolicy: types.StringValue(string(t.MisfirePolicy)),
		CatchUpWindow: newText[durations](formatDuration(t.CatchUpWindow)),
		Enabled:       types.BoolValue(t.Enabled),
	}
}

func newInstant(t *time.Time) text[instants] {
	if t == nil {
		return text[instants]{types.StringNull()}
	}
	return newText[instants](t.UTC().Format(time.RFC3339Nano))
}

// The types of the nested attributes are those of the schema.

func targetType() types.ObjectType {
	return targetAttribute().GetType().(types.ObjectType)
}

func triggersType() types.MapType {
	return triggersAttribute().GetType().(types.MapType)
}

func mapFrom(ctx context.Context, diags *diag.Diagnostics, element attr.Type, from any) types.Map {
	m, found := types.MapValueFrom(ctx, element, from)
	diags.Append(found...)
	return m
}

func objectFrom(ctx context.Context, diags *diag.Diagnostics, of types.ObjectType, from any) types.Object {
	object, found := types.ObjectValueFrom(ctx, of.AttrTypes, from)
	diags.Append(found...)
	return object
}
