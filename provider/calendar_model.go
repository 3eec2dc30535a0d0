package provider

import (
	"cmp"
	"context"
	"math/big"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// calendarModel is a carillon_calendar as configuration, plan and state hold it.
type calendarModel struct {
	ID          types.String `tfsdk:"id"`
	App         types.String `tfsdk:"app"`
	Name        types.String `tfsdk:"name"`
	Description types.String `tfsdk:"description"`
	Timezone    types.String `tfsdk:"timezone"`
	Rules       types.List   `tfsdk:"rules"`
	Bases       types.List   `tfsdk:"bases"`
	Revision    types.Int64  `tfsdk:"revision"`
}

type ruleModel struct {
	Only        types.Bool   `tfsdk:"only"`
	Dates       types.List   `tfsdk:"dates"`
	Weekdays    types.List   `tfsdk:"weekdays"`
	DaysOfMonth types.List   `tfsdk:"days_of_month"`
	From        types.String `tfsdk:"from"`
	To          types.String `tfsdk:"to"`
	Expression  types.String `tfsdk:"expression"`
	ICalendar   types.String `tfsdk:"icalendar"`
}

// readCalendar returns the calendar that a model describes.
func readCalendar(ctx context.Context, read *reader, m calendarModel) dispatcher.Calendar {
	calendar := dispatcher.Calendar{
		App:         read.text("/app", m.App),
		Name:        read.text("/name", m.Name),
		Description: read.text("/description", m.Description),
		Bases:       read.texts("/bases", m.Bases),
	}
	readWord(read, "/timezone", m.Timezone, &calendar.Timezone)
	for i, element := range read.list("/rules", m.Rules) {
		object, _ := element.(types.Object)
		calendar.Rules = append(calendar.Rules, readRule(ctx, read, "/rules/"+strconv.Itoa(i), object))
	}
	return calendar
}

func readRule(ctx context.Context, read *reader, pointer string, object types.Object) schedule.CalendarRule {
	var m ruleModel
	if !read.object(ctx, pointer, object, &m) {
		return schedule.CalendarRule{}
	}
	rule := schedule.CalendarRule{
		Only:     read.bool(pointer+"/only", m.Only, false),
		Dates:    read.texts(pointer+"/dates", m.Dates),
		Weekdays: read.texts(pointer+"/weekdays", m.Weekdays),
	}
	for i, element := range read.list(pointer+"/days_of_month", m.DaysOfMonth) {
		day, _ := element.(types.Number)
		at := pointer + "/days_of_month/" + strconv.Itoa(i)
		read.element(at, day)
		rule.DaysOfMonth = append(rule.DaysOfMonth, read.whole(at, day, schedule.CodeCronRange, "give a day from 1 to 31"))
	}
	for _, text := range []struct {
		name  string
		value types.String
		field *string
	}{{"from", m.From, &rule.From}, {"to", m.To, &rule.To}, {"expression", m.Expression, &rule.Expression}, {"icalendar", m.ICalendar, &rule.ICalendar}} {
		readWord(read, pointer+"/"+text.name, text.value, text.field)
	}
	if !read.settled(pointer) {
		read.partial = append(read.partial, pointer) // it may come to be of exactly one kind
	}
	return rule
}

// utc is the zone of a calendar that names none.
const utc = "UTC"

// newCalendarModel returns the model of a calendar that the API answered. Lists that it
// leaves out are empty, as in the plan of a configuration that does.
func newCalendarModel(ctx context.Context, calendar dispatcher.Calendar, _ calendarModel) (calendarModel, diag.Diagnostics) {
	var diags diag.Diagnostics
	return calendarModel{
		ID:          types.StringValue(calendar.App + "/" + calendar.Name),
		App:         types.StringValue(calendar.App),
		Name:        types.StringValue(calendar.Name),
		Description: types.StringValue(calendar.Description),
		Timezone:    types.StringValue(cmp.Or(calendar.Timezone, utc)),
		Rules:       newRules(ctx, &diags, calendar.Rules),
		Bases:       listFrom(ctx, &diags, types.StringType, calendar.Bases),
		Revision:    types.Int64Value(calendar.Revision),
	}, diags
}

func newRules(ctx context.Context, diags *diag.Diagnostics, rules []schedule.CalendarRule) types.List {
	var models []ruleModel
	for _, rule := range rules {
		var days []*big.Float
		for _, day := range rule.DaysOfMonth {
			days = append(days, big.NewFloat(float64(day)))
		}
		models = append(models, ruleModel{
			Only:        types.BoolValue(rule.Only),
			Dates:       listFrom(ctx, diags, types.StringType, rule.Dates),
			Weekdays:    listFrom(ctx, diags, types.StringType, rule.Weekdays),
			DaysOfMonth: listFrom(ctx, diags, types.NumberType, days),
			From:        word(rule.From), To: word(rule.To), Expression: word(rule.Expression), ICalendar: word(rule.ICalendar),
		})
	}
	return listFrom(ctx, diags, ruleType(), models)
}

// listFrom makes a list of from, never null.
func listFrom[T any](ctx context.Context, diags *diag.Diagnostics, element attr.Type, from []T) types.List {
	if len(from) == 0 {
		return types.ListValueMust(element, []attr.Value{})
	}
	list, found := types.ListValueFrom(ctx, element, from)
	diags.Append(found...)
	return list
}
