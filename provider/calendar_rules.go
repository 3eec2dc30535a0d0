package provider

import (
	"context"
	"strconv"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

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

func ruleAttribute() schema.ListNestedAttribute {
	rule := schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"only": boolWithDefault(false, "Inverts the rule: it excludes everything that does not match."),
		"dates": listWithDefault(types.StringType, "Days (`2026-12-25`, or `12-25` for every year) and spans "+
			"(`2026-12-24/2027-01-02` or `12-24/01-02`, both ends included), at most 1000. Default: none."),
		"weekdays":      listWithDefault(types.StringType, "Weekdays: `SAT`, or `MON-FRI`. Default: none."),
		"days_of_month": listWithDefault(types.NumberType, "Days of the month, `1` to `31`. Default: none."),
		"from": optionalString("Time of day at which the span begins, such as `22:00`, inclusive. Default: the beginning of the " +
			"day, if `to` is set."),
		"to": optionalString("Time of day at which the span ends, such as `06:00`, exclusive. If it is not after `from`, the span " +
			"passes midnight. Default: the end of the day, if `from` is set."),
		"expression": optionalString("A cron expression of five, six or seven fields. It matches the whole second that starts at " +
			"each of its local times. Default: none."),
		"icalendar": optionalString("iCalendar text (RFC 5545) of whole-day events, single or with `RRULE:FREQ=YEARLY`, such as " +
			"`file(\"holidays.ics\")`. At most 64 KiB. Default: none."),
	}}
	return schema.ListNestedAttribute{
		Optional: true,
		MarkdownDescription: "A rule, which says what the calendar excludes: exactly one of `dates`, `weekdays`, " +
			"`days_of_month`, `from` and `to`, `expression`, or `icalendar`. A calendar has at most 100. Default: nothing is excluded.",
		NestedObject: rule,
	}
}

var ruleType = sync.OnceValue(func() types.ObjectType {
	return ruleAttribute().GetType().(attr.TypeWithElementType).ElementType().(types.ObjectType)
})

func expandRule(ctx context.Context, e *expander, pointer string, object types.Object) schedule.CalendarRule {
	var m ruleModel
	if !e.object(ctx, pointer, object, &m) {
		return schedule.CalendarRule{}
	}
	rule := schedule.CalendarRule{
		Only:     e.bool(pointer+"/only", m.Only, false),
		Dates:    e.stringList(pointer+"/dates", m.Dates),
		Weekdays: e.stringList(pointer+"/weekdays", m.Weekdays),
	}
	for i, element := range e.list(pointer+"/days_of_month", m.DaysOfMonth) {
		day, _ := element.(types.Number)
		at := pointer + "/days_of_month/" + strconv.Itoa(i)
		e.rejectNull(at, day)
		rule.DaysOfMonth = append(rule.DaysOfMonth, e.whole(at, day, 0, input.CodeCronRange, "give a day from 1 to 31"))
	}
	expandOptional(e, pointer+"/from", m.From, &rule.From)
	expandOptional(e, pointer+"/to", m.To, &rule.To)
	expandOptional(e, pointer+"/expression", m.Expression, &rule.Expression)
	expandOptional(e, pointer+"/icalendar", m.ICalendar, &rule.ICalendar)
	if !e.allKnown(pointer) {
		e.incomplete = append(e.incomplete, pointer) // an unknown attribute may turn out to be null
	}
	return rule
}

func flattenRules(ctx context.Context, diags *diag.Diagnostics, rules []schedule.CalendarRule) types.List {
	var models []ruleModel
	for _, rule := range rules {
		var days []types.Number
		for _, day := range rule.DaysOfMonth {
			days = append(days, flattenNumber(day))
		}
		models = append(models, ruleModel{
			Only:        types.BoolValue(rule.Only),
			Dates:       flattenList(ctx, diags, types.StringType, rule.Dates),
			Weekdays:    flattenList(ctx, diags, types.StringType, rule.Weekdays),
			DaysOfMonth: flattenList(ctx, diags, types.NumberType, days),
			From:        flattenOptional(rule.From),
			To:          flattenOptional(rule.To),
			Expression:  flattenOptional(rule.Expression),
			ICalendar:   flattenOptional(rule.ICalendar),
		})
	}
	return flattenList(ctx, diags, ruleType(), models)
}
