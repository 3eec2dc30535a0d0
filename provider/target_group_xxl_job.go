package provider

import (
	"cmp"
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// xxlJobModel is what executors of XXL-JOB run.
type xxlJobModel struct {
	Handler         types.String   `tfsdk:"handler"`
	Param           types.String   `tfsdk:"param"`
	Blocking        types.String   `tfsdk:"blocking"`
	ExecutorTimeout durationString `tfsdk:"executor_timeout"`
	CallbackTimeout durationString `tfsdk:"callback_timeout"`
}

func xxlJobAttribute() schema.SingleNestedAttribute {
	return optionalObject("What executors run, for a group of the kind `xxl_job`. Then `timeout` bounds how long an executor may take to "+
		"accept the run, and `path`, `method`, `headers`, `body`, `success_codes`, `expect_body`, `cloud_events`, `callback` and "+
		"`endpoint_concurrency` are not there. "+
		"Default: the endpoints of the group are no executors.",
		map[string]schema.Attribute{
			"handler": requiredString("Name of the JobHandler (BEAN mode)."),
			"param": optionalString("The parameter of the run, which may be a template, like `body`. Default: the `payload` of the job, of " +
				"which a JSON string is sent without its quotes."),
			"blocking": stringWithDefault(target.BlockingQueue, "What an executor does if it runs the job already: `queue` (serial "+
				"execution), `forbid` (discard later: the attempt fails) or `replace` (cover early: it stops the earlier run)."),
			"executor_timeout": durationWithDefault(0, "How long a run may take until its executor interrupts it, in whole seconds. `0s`: for "+
				"any time."),
			"callback_timeout": durationWithDefault(run.DefaultCallbackTimeout, "How long after it accepted a run an executor may call "+
				"back, from `1s` to `7d`. After it, the attempt is timed out."),
		})
}

func expandXXLJob(ctx context.Context, e *expander, pointer string, object types.Object) *target.XXLJobRun {
	var m xxlJobModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	var x target.XXLJobRun
	x.SetDefaults()
	x.Handler = e.required(pointer+"/handler", m.Handler)
	expandOptional(e, pointer+"/param", m.Param, &x.Param)
	expandOptional(e, pointer+"/blocking", m.Blocking, &x.Blocking)
	x.ExecutorTimeout = e.duration(pointer+"/executor_timeout", m.ExecutorTimeout, 0)
	x.CallbackTimeout = e.someTime(pointer+"/callback_timeout", m.CallbackTimeout, x.CallbackTimeout)
	return &x
}

func flattenXXLJob(ctx context.Context, diags *diag.Diagnostics, x *target.XXLJobRun) types.Object {
	of := xxlJobAttribute().GetType().(types.ObjectType)
	if x == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, diags, of, xxlJobModel{
		Handler: types.StringValue(x.Handler), Param: flattenOptional(x.Param),
		Blocking:        types.StringValue(string(cmp.Or(x.Blocking, target.BlockingQueue))),
		ExecutorTimeout: flattenDuration(x.ExecutorTimeout),
		CallbackTimeout: flattenDuration(cmp.Or(x.CallbackTimeout, run.DefaultCallbackTimeout)),
	})
}
