package provider

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// Address is the provider's source address.
const Address = "registry.terraform.io/carillon-dev/carillon"

var _ provider.ProviderWithFunctions = (*carillonProvider)(nil)

type carillonProvider struct {
	version string
	conn    *connection // nil until Configure
}

// New returns a function that creates the provider, as a plugin server needs it. version becomes
// part of the user agent.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &carillonProvider{version: version} }
}

type providerModel struct {
	Endpoint      types.String `tfsdk:"endpoint"`
	Token         types.String `tfsdk:"token"`
	CACert        types.String `tfsdk:"ca_cert"`
	ClientCert    types.String `tfsdk:"client_cert"`
	ClientKey     types.String `tfsdk:"client_key"`
	RetryFor      types.String `tfsdk:"retry_for"`
	DefaultLabels types.Map    `tfsdk:"default_labels"`
}

func (p *carillonProvider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "carillon"
	resp.Version = p.version
}

func (p *carillonProvider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Manages the apps, calendars, endpoint groups, alerts and jobs of " +
			"[Carillon](https://github.com/carillon-dev/carillon), which calls webhooks and Lambda functions on " +
			"schedule, and reads its runs and nodes.",
		Attributes: map[string]schema.Attribute{
			"endpoint": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Base URL of a dispatcher's HTTP API, such as `https://carillon.internal:8080`. " +
					"Plain `http` to another machine gives a warning, because it sends the token unencrypted. " +
					"Default: the environment variable `CARILLON_ENDPOINT`.",
			},
			"token": schema.StringAttribute{
				Optional:  true,
				Sensitive: true,
				MarkdownDescription: "API token with the scopes `read` and `write`, created by `carillon token create`, or a JSON " +
					"Web Token of an issuer that the nodes trust. It is not written to the state. Default: the environment " +
					"variable `CARILLON_TOKEN`. Prefer that, because it keeps the token out of files.",
			},
			"ca_cert": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Certificates of the authorities that the API's certificate may come from: a file in PEM form, or its " +
					"text. Default: the environment variable `CARILLON_CA_CERT`, else the authorities of this machine.",
			},
			"client_cert": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Client certificate, for nodes with `--client-ca`: a file in PEM form, or its text. It needs " +
					"`client_key`. Default: the environment variable `CARILLON_CLIENT_CERT`.",
			},
			"client_key": schema.StringAttribute{
				Optional:  true,
				Sensitive: true,
				MarkdownDescription: "Private key of the client certificate: a file in PEM form, or its text. It is not written to the state. " +
					"Default: the environment variable `CARILLON_CLIENT_KEY`.",
			},
			"retry_for": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "How long a request is tried again while no node accepts the connection, the API has no database or " +
					"there are too many requests: a duration of at most `1h`, so that no apply fails while nodes restart. A request is never " +
					"repeated if that could do anything twice. With `0s` there is one try. Default: `" + binding.FormatDuration(defaultRetryFor) + "`.",
			},
			"default_labels": schema.MapAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Labels of all jobs, such as `{ repository = \"infrastructure\" }`. A job may replace them by `labels` " +
					"of the same name. Default: none.",
			},
		},
	}
}

// Configure creates the client but sends no request: the same plan may create the dispatcher at the
// endpoint. If the dispatcher rejects endpoint or token, the first request reports it; see
// connection.report.
func (p *carillonProvider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var model providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)
	if resp.Diagnostics.HasError() {
		return
	}
	conn := connect(model, p.version, &resp.Diagnostics)
	p.conn = conn
	resp.ResourceData, resp.DataSourceData = conn, conn
}

func (p *carillonProvider) Resources(context.Context) []func() resource.Resource {
	var all []func() resource.Resource
	for _, of := range kinds {
		all = append(all, func() resource.Resource { return definitionResource{heading: of(nil).about()} })
	}
	return all
}

func (p *carillonProvider) DataSources(context.Context) []func() datasource.DataSource {
	var all []func() datasource.DataSource
	for _, one := range []dataSource{
		alertSource, appSource, calendarSource, endpointsSource, jobSource, misfiresSource, nodesSource, runSource, runsSource, scheduleSource,
	} {
		all = append(all, func() datasource.DataSource {
			fresh := one // Configure sets its connection
			return &fresh
		})
	}
	return all
}

// Functions lists the functions, which need Terraform 1.8 or OpenTofu 1.7.
func (p *carillonProvider) Functions(context.Context) []func() function.Function {
	return []func() function.Function{
		func() function.Function { return describe },
		func() function.Function { return fromEventBridge },
		func() function.Function { return nextFires },
	}
}

// connect checks the settings and returns the connection. With an unknown setting, using the
// connection reports that: a plan that only creates resources does not use it.
func connect(model providerModel, version string, diags *diag.Diagnostics) *connection {
	conn := &connection{Plan: plan.New(paths(), plan.WarnedFile())}
	endpoint := conn.required(diags, model.Endpoint, "endpoint", "the base URL of a dispatcher's API, such as https://carillon.internal:8080")
	token := conn.required(diags, model.Token, "token", "a token with the scopes read and write, created by `carillon token create`")
	transport, err := client.Certificates{
		CACert:     conn.argument(model.CACert, "ca_cert"),
		ClientCert: conn.argument(model.ClientCert, "client_cert"),
		ClientKey:  conn.argument(model.ClientKey, "client_key"),
	}.Transport(client.Certificates{CACert: "ca_cert", ClientCert: "client_cert", ClientKey: "client_key"})
	if err != nil && len(conn.unknown) == 0 {
		diags.AddError("Invalid certificates of the Carillon provider", err.Error()+
			". Each may come from an environment variable: CARILLON_CA_CERT, CARILLON_CLIENT_CERT, CARILLON_CLIENT_KEY.")
	}
	if endpoint != "" {
		checkEndpoint(endpoint, diags)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		diags.AddAttributeError(path.Root("token"), "Invalid token of the Carillon provider",
			"The token contains a space, a line break or another character that no token has. "+
				"Copy exactly what `carillon token create` printed, without quotes or the end of the line.")
	}
	retryFor := retryFor(model.RetryFor, diags)
	conn.labels, conn.labelsUnknown = defaultLabels(model.DefaultLabels, diags)
	if diags.HasError() || len(conn.unknown) > 0 {
		return conn
	}
	options := client.Options{UserAgent: "terraform-provider-carillon/" + version, RetryFor: retryFor, Transport: transport}
	if conn.Client, err = client.New(endpoint, token, options); err != nil {
		diags.AddAttributeError(path.Root("endpoint"), endpointSummary, err.Error())
		return conn
	}
	options.RetryFor = min(retryFor, client.DefaultRetryFor)
	conn.first, _ = client.New(endpoint, token, options) // as before, without an error
	conn.Endpoint = endpoint
	return conn
}

// A node restarts within defaultRetryFor.
const (
	defaultRetryFor = input.Duration(30 * time.Second)
	maxRetryFor     = input.Duration(time.Hour)
)

// retryFor returns client.Options.RetryFor, where a negative value turns retries off. An unknown
// argument means the default, so the plan does not wait for it.
func retryFor(value types.String, diags *diag.Diagnostics) time.Duration {
	if value.IsNull() || value.IsUnknown() {
		return time.Duration(defaultRetryFor)
	}
	d, err := input.ParseDuration(value.ValueString())
	if err == nil && (d < 0 || d > maxRetryFor) {
		err = fmt.Errorf("%s is outside the range from 0s to %s", binding.FormatDuration(d), binding.FormatDuration(maxRetryFor))
	}
	if err != nil {
		diags.AddAttributeError(path.Root("retry_for"), "Invalid retry_for of the Carillon provider", err.Error()+
			"; give a duration such as 30s, or 0s for a single try.")
	}
	if d == 0 {
		return -1
	}
	return time.Duration(d)
}

// argument returns the value of an argument or, if that is missing or empty, of its environment variable. It notes an unknown one.
func (c *connection) argument(value types.String, name string) string {
	if value.IsUnknown() {
		c.unknown = append(c.unknown, name)
		return ""
	}
	return cmp.Or(value.ValueString(), os.Getenv("CARILLON_"+strings.ToUpper(name)))
}

// required is argument for one that must have a value.
func (c *connection) required(diags *diag.Diagnostics, value types.String, name, meaning string) string {
	text := c.argument(value, name)
	if text == "" && !value.IsUnknown() {
		diags.AddAttributeError(path.Root(name), fmt.Sprintf("Missing %s of the Carillon provider", name),
			fmt.Sprintf("Neither the argument %s nor the environment variable CARILLON_%s is set. Set one of them to %s.",
				name, strings.ToUpper(name), meaning))
	}
	return text
}

const endpointSummary = "Invalid endpoint of the Carillon provider (provider_endpoint)"

// checkEndpoint adds an error unless text can be the base URL of an API, and a warning for plain
// HTTP to another machine.
func checkEndpoint(text string, diags *diag.Diagnostics) {
	const form = "Write it as https://host:8080."
	problem := ""
	switch u, err := url.Parse(text); {
	case strings.Contains(text, "@"):
		// The message must not repeat the endpoint: the part before the @ may be a password.
		problem = "The endpoint contains a user name or password. The provider authenticates by token; remove the part " +
			"up to the @."
	case err != nil || u.Scheme == "" || u.Opaque != "": // "localhost:8080" parses as scheme and opaque part
		problem = fmt.Sprintf("The endpoint %s is not a URL. %s", input.Echo(text), form)
	case u.Scheme != "http" && u.Scheme != "https":
		problem = fmt.Sprintf("The endpoint %s has the scheme %s; it must be http or https. %s",
			input.Echo(text), input.Echo(u.Scheme), form)
	case u.Hostname() == "":
		problem = fmt.Sprintf("The endpoint %s has no host. %s", input.Echo(text), form)
	case u.RawQuery != "" || u.Fragment != "":
		problem = fmt.Sprintf("The endpoint %s has a query or fragment, but the provider appends paths to it. %s",
			input.Echo(text), form)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		diags.AddAttributeWarning(path.Root("endpoint"), "The token is sent unencrypted",
			fmt.Sprintf("The endpoint %s is plain http to another machine, so anyone on the network path can read the API "+
				"token. Use https.", input.Echo(text)))
	}
	if problem != "" {
		diags.AddAttributeError(path.Root("endpoint"), endpointSummary, problem)
	}
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// connection is what resources and data sources share: the provider block's settings and the process's Plan.
type connection struct {
	*plan.Plan
	first         *client.Client    // for the first request of a plan, which waits less for a node
	met           sync.Once         // that request was made
	unknown       []string          // the arguments of the provider block that are unknown
	labels        map[string]string // default_labels
	labelsUnknown bool
}

// unconfigured returns the connection of an unconfigured provider, as during validation.
func unconfigured() *connection {
	return &connection{Plan: plan.New(paths(), ""), labelsUnknown: true}
}

// configured returns the connection from the data that Terraform passes to Configure. It is nil
// while the provider is not configured, as during validation.
func configured(providerData any) *connection {
	conn, _ := providerData.(*connection)
	return conn
}

// meet makes the first request of a process, before it plans anything. A response that no later request could mend is an error. Without
// a node the plan goes on, but says that it compares nothing: the same apply may start the node.
func (c *connection) meet(ctx context.Context, diags *diag.Diagnostics) {
	if c.first == nil {
		return
	}
	c.met.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // for all tries
		defer cancel()
		_, err := c.first.OwnToken(ctx)
		var response *client.Error
		switch {
		case err == nil || errors.Is(err, context.Canceled):
		case errors.Is(err, dispatcher.ErrNotFound): // Carillon has no such route
			c.Unreached(diags, nil)
			diags.AddError(endpointSummary, fmt.Sprintf("The endpoint %s is not the base URL of a dispatcher's API: %v. %s", c.Endpoint, err,
				"Leave out the path, unless a proxy serves the API below one."))
		case errors.As(err, &response) && response.Status < http.StatusInternalServerError, errors.Is(err, client.ErrForeign), misled(err):
			c.Unreached(diags, nil)
			c.report(diags, "begin to plan", err)
		default:
			c.Unreached(diags, err)
		}
	})
}

// misled reports whether a request found no node for a reason that does not pass: the host does not exist, or scheme, certificate or
// port are those of something else.
func misled(err error) bool {
	var noHost *net.DNSError
	var noTLS tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &noHost) && noHost.IsNotFound || errors.As(err, &noTLS) || errors.As(err, &certificate) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

// ready reports whether requests can be made. If not, it adds an error that says why.
func (c *connection) ready(diags *diag.Diagnostics) bool {
	if len(c.unknown) == 0 {
		return true
	}
	diags.AddAttributeError(path.Root(c.unknown[0]), "The Carillon provider is not configured yet",
		fmt.Sprintf("The %s of the provider block is known only after apply, but this plan must read from the API now. "+
			"First apply the resources that it depends on with -target, or set a value that is known at plan.",
			strings.Join(c.unknown, " and ")))
	return false
}

// privateFormat is the format of private that this version writes. It reads no other.
const privateFormat = 1

// private is what Terraform keeps about a resource next to its state, and shows to nobody.
type private struct {
	Format int `json:"format"`
	// Origin is the name that a job was created with. It identifies the job, because a rename does not change it.
	Origin string `json:"origin,omitempty"`
}

// privateIn reads the private data of a resource. Those of another format, or none, give an empty value.
func privateIn(data []byte) (p private) {
	if err := json.Unmarshal(data, &p); err != nil || p.Format != privateFormat {
		return private{}
	}
	return p
}

// data is the inverse of privateIn; nil if there is nothing to keep.
func (p private) data() []byte {
	if p == (private{}) {
		return nil
	}
	p.Format = privateFormat
	data, _ := json.Marshal(p) // its types always succeed
	return data
}
