package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// kind is what the provider can do with one kind of definition, whose model is M. definition does it for all kinds but jobs,
// which plan more and are planned by the thousand.
type kind[M any] interface {
	about() heading
	// validate checks all known values of a configuration by the rules of the domain.
	validate(ctx context.Context, diags *diag.Diagnostics, config M)
	// planned returns the plan that Terraform shows. After an error it is the one of the change.
	planned(ctx context.Context, diags *diag.Diagnostics, change change[M]) M
	// read returns a definition as the API has it. It is not found if it was deleted outside of Terraform.
	read(ctx context.Context, diags *diag.Diagnostics, state M) (model M, found bool)
	// written creates or updates a definition as planned, and returns what the API made of it if there is something to store.
	written(ctx context.Context, diags *diag.Diagnostics, change change[M]) (model M, done bool)
	deleted(ctx context.Context, diags *diag.Diagnostics, state M)
}

// heading is what a resource says of itself.
type heading struct {
	kind        string // as messages call it; the type of the resource follows from it
	schema      func() schema.Schema
	importState func(context.Context, resource.ImportStateRequest, *resource.ImportStateResponse)
}

func (h heading) about() heading { return h }

// change is what a plan, or its apply, makes of a definition.
type change[M any] struct {
	config, plan, state M
	isNew               bool // there is no state
}

// definitionResource is the resource of a kind of definition, as Terraform's framework calls it. Its methods read what the
// framework has, and leave the rest to the kind.
type definitionResource[M any] struct {
	conn *connection
	of   func(*connection) kind[M]
}

var (
	_ resource.ResourceWithConfigure      = (*definitionResource[any])(nil)
	_ resource.ResourceWithImportState    = (*definitionResource[any])(nil)
	_ resource.ResourceWithModifyPlan     = (*definitionResource[any])(nil)
	_ resource.ResourceWithValidateConfig = (*definitionResource[any])(nil)
)

// resourceOf returns a function that creates the resource of a kind, as the framework needs it.
func resourceOf[M any](of func(*connection) kind[M]) func() resource.Resource {
	return func() resource.Resource { return &definitionResource[M]{of: of} }
}

func (r *definitionResource[M]) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = resourceType(r.of(nil).about().kind)
}

func (r *definitionResource[M]) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.of(nil).about().schema()
}

func (r *definitionResource[M]) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *definitionResource[M]) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	r.of(nil).about().importState(ctx, req, resp)
}

// ValidateConfig warns of nothing, because Terraform validates each resource several times, and before it knows the values of
// for_each.
func (r *definitionResource[M]) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config M
	if got(&resp.Diagnostics, read(ctx, req.Config, &config)) {
		r.of(r.conn).validate(ctx, &resp.Diagnostics, config)
	}
}

func (r *definitionResource[M]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return // a destroy
	}
	change := change[M]{isNew: req.State.Raw.IsNull()}
	ok := got(&resp.Diagnostics, read(ctx, req.Config, &change.config), read(ctx, req.Plan, &change.plan))
	if !change.isNew {
		ok = got(&resp.Diagnostics, read(ctx, req.State, &change.state)) && ok
	}
	if ok {
		planned := r.of(r.conn).planned(ctx, &resp.Diagnostics, change)
		resp.Diagnostics.Append(resp.Plan.Set(ctx, written(planned))...)
	}
}

func (r *definitionResource[M]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	change := change[M]{isNew: true}
	// Write-only values are in no plan.
	if !got(&resp.Diagnostics, read(ctx, req.Plan, &change.plan), read(ctx, req.Config, &change.config)) {
		return
	}
	if model, done := r.of(r.conn).written(ctx, &resp.Diagnostics, change); done {
		resp.Diagnostics.Append(resp.State.Set(ctx, written(model))...)
	}
}

func (r *definitionResource[M]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state M
	if !got(&resp.Diagnostics, read(ctx, req.State, &state)) {
		return
	}
	model, found := r.of(r.conn).read(ctx, &resp.Diagnostics, state)
	if !found && !resp.Diagnostics.HasError() {
		resp.State.RemoveResource(ctx)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, written(model))
}

func (r *definitionResource[M]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var change change[M]
	if !got(&resp.Diagnostics, read(ctx, req.Plan, &change.plan), read(ctx, req.Config, &change.config), read(ctx, req.State, &change.state)) {
		return
	}
	if model, done := r.of(r.conn).written(ctx, &resp.Diagnostics, change); done {
		resp.Diagnostics.Append(resp.State.Set(ctx, written(model))...)
	}
}

func (r *definitionResource[M]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state M
	if got(&resp.Diagnostics, read(ctx, req.State, &state)) {
		r.of(r.conn).deleted(ctx, &resp.Diagnostics, state)
	}
}

// got adds what is wrong with values that were read, and reports whether they can be used.
func got(diags *diag.Diagnostics, found ...diag.Diagnostics) bool {
	for _, some := range found {
		diags.Append(some...)
	}
	return !diags.HasError()
}

// read reads a model of what the framework has.
func read[M any](ctx context.Context, from interface {
	Get(ctx context.Context, target any) diag.Diagnostics
}, model *M) diag.Diagnostics {
	v, is := any(model).(*values)
	if !is {
		return from.Get(ctx, model)
	}
	var object types.Object
	diags := from.Get(ctx, &object)
	*v = object.Attributes()
	return diags
}

// written returns a model as the framework takes it.
func written[M any](model M) any {
	v, is := any(model).(values)
	if !is {
		return model
	}
	kinds := map[string]attr.Type{}
	for name, value := range v {
		kinds[name] = value.Type(context.Background())
	}
	return types.ObjectValueMust(kinds, v)
}
