package provider

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// Address is the provider's source address.
const Address = "registry.terraform.io/carillon-dev/carillon"

var _ provider.Provider = (*carillonProvider)(nil)

type carillonProvider struct {
	version string
}

// New returns what a plugin server wants: a function that makes the provider. version goes
// into the user agent.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &carillonProvider{version: version} }
}

type providerModel struct {
	Endpoint types.String `tfsdk:"endpoint"`
	Token    types.String `tfsdk:"token"`
}

func (p *carillonProvider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "carillon"
	resp.Version = p.version
}

func (p *carillonProvider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Declares the apps, calendars and jobs of [Carillon](https://github.com/carillon-dev/carillon), " +
			"which rings webhooks on schedule, and reads its runs and nodes.",
		Attributes: map[string]schema.Attribute{
			"endpoint": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Base URL of the HTTP API of a dispatcher, such as `https://carillon.internal:8080`. " +
					"Default: the environment variable `CARILLON_ENDPOINT`. With `http` to a host that is not this " +
					"machine the token travels in clear, which gives a warning.",
			},
			"token": schema.StringAttribute{
				Optional:  true,
				Sensitive: true,
				MarkdownDescription: "API token with scope `write`, made by `carillon token create`. " +
					"Default: the environment variable `CARILLON_TOKEN`, which is the better place: it never comes " +
					"near a file. The token is not written to the state.",
			},
		},
	}
}

// Configure makes the client. It makes no request: the endpoint may be that of a dispatcher
// which the same plan creates. What is wrong with endpoint or token at the other end is
// reported by the first request; see connection.report.
func (p *carillonProvider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var model providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)
	if resp.Diagnostics.HasError() {
		return
	}
	conn := connect(model, p.version, &resp.Diagnostics)
	resp.ResourceData, resp.DataSourceData = conn, conn
}

func (p *carillonProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newAppResource, newCalendarResource, newJobResource}
}

func (p *carillonProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{newNodesDataSource, newRunDataSource, newRunsDataSource}
}

// connect judges the settings and returns the connection. A setting that is not known yet
// gives a connection that reports so when it is used, since a plan that only creates things
// uses none.
func connect(model providerModel, version string, diags *diag.Diagnostics) *connection {
	conn := &connection{}
	if model.Endpoint.IsUnknown() {
		conn.unknown = append(conn.unknown, "endpoint")
	}
	if model.Token.IsUnknown() {
		conn.unknown = append(conn.unknown, "token")
	}
	endpoint := setting(model.Endpoint, "endpoint", "CARILLON_ENDPOINT",
		"the base URL of a dispatcher's API, such as https://carillon.internal:8080", diags)
	token := setting(model.Token, "token", "CARILLON_TOKEN",
		"a token with scope write, made by `carillon token create`", diags)
	if endpoint != "" {
		checkEndpoint(endpoint, diags)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		diags.AddAttributeError(path.Root("token"), "Invalid token of the Carillon provider",
			"The token holds a space, a line break or another character that no token has. "+
				"Give exactly what `carillon token create` printed, without quotes or the line's end.")
	}
	if diags.HasError() || len(conn.unknown) > 0 {
		return conn
	}
	api, err := client.New(endpoint, token, client.Options{UserAgent: "terraform-provider-carillon/" + version})
	if err != nil {
		diags.AddAttributeError(path.Root("endpoint"), endpointSummary, err.Error())
	}
	conn.Client, conn.endpoint = api, endpoint
	return conn
}

// setting returns the value of an argument or, if it is not given or empty, of its
// environment variable. One that is unknown returns "" without an error.
func setting(value types.String, name, variable, meaning string, diags *diag.Diagnostics) string {
	if value.IsUnknown() {
		return ""
	}
	if text := value.ValueString(); text != "" {
		return text
	}
	text := os.Getenv(variable)
	if text == "" {
		diags.AddAttributeError(path.Root(name), fmt.Sprintf("Missing %s of the Carillon provider", name),
			fmt.Sprintf("Neither the argument %s nor the environment variable %s is set. Set one of them to %s.", name, variable, meaning))
	}
	return text
}

const endpointSummary = "Invalid endpoint of the Carillon provider (provider_endpoint)"

// checkEndpoint reports what is no base URL of an API, and plain HTTP that leaves the machine.
func checkEndpoint(text string, diags *diag.Diagnostics) {
	const form = "Write it as https://host:8080."
	problem := ""
	switch u, err := url.Parse(text); {
	case strings.Contains(text, "@"):
		// Not echoed: what stands before the @ is a password, or part of one.
		problem = "The endpoint carries a user name or password. Authentication is by token; remove the part up to the @."
	case err != nil || u.Scheme == "" || u.Opaque != "": // "localhost:8080" parses as scheme and opaque part
		problem = fmt.Sprintf("The endpoint %s is not a URL. %s", dispatcher.Echo(text), form)
	case u.Scheme != "http" && u.Scheme != "https":
		problem = fmt.Sprintf("The endpoint %s has the scheme %s; it must be http or https. %s", dispatcher.Echo(text), dispatcher.Echo(u.Scheme), form)
	case u.Hostname() == "":
		problem = fmt.Sprintf("The endpoint %s names no host. %s", dispatcher.Echo(text), form)
	case u.RawQuery != "" || u.Fragment != "":
		problem = fmt.Sprintf("The endpoint %s has a query or fragment; it is the base that paths are added to. %s", dispatcher.Echo(text), form)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		diags.AddAttributeWarning(path.Root("endpoint"), "The token travels in clear",
			fmt.Sprintf("The endpoint %s is plain http and not on this machine, so anyone who sits on the way can read the API token. Use https.", dispatcher.Echo(text)))
	}
	if problem != "" {
		diags.AddAttributeError(path.Root("endpoint"), endpointSummary, problem)
	}
}

// loopback tells the hosts that stand for this machine.
func loopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
