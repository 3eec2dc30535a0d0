package provider

import (
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

func webhookAttribute() schema.Attribute {
	var defaults dispatcher.Webhook
	defaults.SetDefaults()
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "An HTTP request to make. Any 2xx answer is a success; redirects are not followed. Default: none; give " +
			"this or `lambda`. " + dropsUnknown,
		Attributes: map[string]schema.Attribute{
			"url": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Absolute URL, `http` or `https`, of at most 2048 characters, without user, password " +
					"and fragment. Behind the host it may be a template, as `body`; values are percent-encoded.",
			},
			"method": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(defaults.Method),
				MarkdownDescription: "HTTP method: " + codes(dispatcher.Methods) + ". `GET` and `HEAD` send no body. Default: `" +
					defaults.Method + "`.",
			},
			"headers": schema.MapAttribute{
				Optional:    true,
				ElementType: types.StringType,
				MarkdownDescription: "Headers to send: at most 50, each value at most 8 KiB. Those that frame the request or " +
					"say who sends it (`Host`, `Content-Length`, `User-Agent`, `webhook-*` and the like) are " +
					"refused. Values may be templates, as `body`. They are kept in the state, as everything is; give those that are " +
					"secret by a variable marked `sensitive`. Default: none.",
			},
			"body": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "A template of what is sent in place of the payload: at most 256 KiB, and so is what comes of it. In it, " +
					codes(actions()) + " stand for what is known of the attempt; `{{json .Job}}` and `{{urlquery .Job}}` write any of them as JSON or " +
					"percent-encoded, `{{date \"%Y-%m-%d\" \"Europe/Berlin\" .ScheduledAt}}` an instant by strftime, and " +
					"`{{if .PreviousFire}}…{{else}}…{{end}}` asks whether there is one. Write `{{\"{{\"}}` for braces that are meant. " +
					"It is sent as `application/json` unless `headers` say otherwise. Default: the payload is the body.",
			},
			"timeout": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(formatDuration(defaults.Timeout)),
				CustomType: textType[durations]{},
				MarkdownDescription: "How long one attempt may take from dialling to the last byte: a duration such as `500ms`, " +
					"`30s` or `1h30m`, from `100ms` to `24h`. Default: `" + formatDuration(defaults.Timeout) + "`.",
				PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
			},
			"signing": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "Signs each request by Standard Webhooks, in the header `webhook-signature`. " + dropsUnknown +
					" Default: requests are not signed.",
				Attributes: map[string]schema.Attribute{
					"secrets": schema.MapNestedAttribute{
						Required: true,
						MarkdownDescription: fmt.Sprintf("Secrets by a name (%s), at most %d. A request has a signature for each: to replace one, "+
							"add the new beside it, let the receivers know the new one, and remove the old. `whsec_` and base64 of 24 to 64 bytes makes "+
							"HMAC-SHA256 signatures (`v1`), `whsk_` and base64 of a private key makes ed25519 ones (`v1a`).", nameRule, dispatcher.MaxSigningSecrets),
						NestedObject: schema.NestedAttributeObject{Attributes: secretAttributes()},
					},
				},
			},
			"auth": authAttribute(),
			"tls":  tlsAttribute(),
			"success_codes": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: fmt.Sprintf("Statuses that count as success, such as `\"204\"`, or classes of them, such as `\"2xx\"`; at most %d. "+
					"Default: `[\"2xx\"]`.", dispatcher.MaxSuccessCodes),
			},
			"expect_body": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "A regular expression (RE2) that the body of a success has to match, within its first 64 KiB; else the attempt " +
					"fails. Default: any body will do.",
			},
			"cloud_events": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Makes each request a CloudEvent 1.0: `binary` puts its attributes into headers, `structured` " +
					"puts an envelope around the payload. Default: it is none.",
			},
		},
	}
}

// actions are the fields of templates as they are written.
func actions() []string {
	var all []string
	for _, field := range dispatcher.TemplateFields {
		all = append(all, strings.Replace("{{."+field+"}}", ".Payload", "json .Payload", 1))
	}
	return all
}

func tlsAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "Tunes the connections of `https`. " + dropsUnknown + " Default: as the nodes' system has it, TLS 1.2 or later.",
		Attributes: map[string]schema.Attribute{
			"ca_certificates": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "PEM certificates of those who may vouch for the target, instead of those that the nodes' system trusts. " +
					"Default: those of the system.",
			},
			"client_certificate": schema.StringAttribute{Optional: true, MarkdownDescription: "PEM chain that the node shows. Default: none."},
			"client_key": schema.SingleNestedAttribute{
				Optional: true, Attributes: secretAttributes(),
				MarkdownDescription: "PEM private key of the client certificate. Default: none.",
			},
			"min_version": schema.StringAttribute{Optional: true, MarkdownDescription: "`1.2` or `1.3`. Default: `1.2`."},
		},
	}
}
