package provider

import (
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (webhookTarget) attribute() schema.SingleNestedAttribute {
	var defaults dispatcher.Webhook
	defaults.SetDefaults()
	return optionalObject("An HTTP request. Any 2xx response is a success, and redirects are not followed. Default: the target is "+
		"of another kind.", map[string]schema.Attribute{
		"url": requiredString("Absolute URL, `http` or `https`, of at most 2048 characters, without user, password " +
			"and fragment. The part after the host may be a template, like `body`; values are percent-encoded."),
		"method": stringWithDefault(defaults.Method, "HTTP method: "+either(dispatcher.Methods)+". `GET` and `HEAD` send no body."),
		"headers": optionalStringMap("Headers to send: at most 50, each value at most 8 KiB. Values may be templates, like `body`. " +
			"Headers that frame the request or identify the sender (`Host`, `Content-Length`, `User-Agent`, `webhook-*` and the " +
			"like) are refused. The state contains all headers; set secret ones from a variable marked `sensitive`. Default: none."),
		"body": optionalString("A template for the body, which replaces the payload. Template and result are at most 256 KiB. " +
			"These actions insert values of the attempt: " + either(templateActions()) + ". `{{json .Job}}` and `{{urlquery .Job}}` write any of " +
			"them as JSON or percent-encoded, `{{date \"%Y-%m-%d\" \"Europe/Berlin\" .ScheduledAt}}` writes an instant in the format " +
			"of strftime, and `{{if .PreviousFire}}…{{else}}…{{end}}` tests whether there is one. Write `{{\"{{\"}}` for literal " +
			"braces. The body is sent as `application/json` unless `headers` say otherwise. Default: the payload is the body."),
		"timeout": durationWithDefault(defaults.Timeout, "Time limit of one attempt, from connecting to the last byte, such as `500ms`, "+
			"`30s` or `1h30m`; from `100ms` to `24h`."),
		"signing": signingAttribute(),
		"auth":    authAttribute(),
		"tls":     tlsAttribute(),
		"success_codes": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: fmt.Sprintf("Statuses that count as success, such as `\"204\"`, or classes of statuses, such as "+
				"`\"2xx\"`; at most %d. Default: `[\"2xx\"]`.", dispatcher.MaxSuccessCodes),
		},
		"expect_body": optionalString("A regular expression (RE2) that the first 64 KiB of a successful response's body must match; " +
			"otherwise the attempt fails. Default: any body is accepted."),
		"cloud_events": optionalString("Makes each request a CloudEvent 1.0: `binary` puts its attributes into headers, `structured` " +
			"wraps the payload in an envelope. Default: requests are not CloudEvents."),
	})
}

// templateActions are the fields of templates as a user writes them.
func templateActions() []string {
	var all []string
	for _, field := range dispatcher.TemplateFields {
		all = append(all, strings.Replace("{{."+field+"}}", ".Payload", "json .Payload", 1))
	}
	return all
}

func signingAttribute() schema.Attribute {
	return optionalObject("Signs each request by Standard Webhooks, in the header `webhook-signature`. "+
		"Default: requests are not signed.", map[string]schema.Attribute{
		"secret": schema.MapNestedAttribute{
			Optional: true,
			MarkdownDescription: fmt.Sprintf("A secret; its label is a name (%s). At least one and at most %d. Each request carries a "+
				"signature for each. To replace a secret, add the new one, give it to the receivers, and then remove the old one. `whsec_` "+
				"and base64 of 24 to 64 bytes makes HMAC-SHA256 signatures (`v1`), `whsk_` and base64 of a private key makes ed25519 ones "+
				"(`v1a`). Default: none, which is refused.",
				nameRule, dispatcher.MaxSigningSecrets),
			NestedObject: schema.NestedAttributeObject{Attributes: secretAttributes()},
		},
	})
}

func tlsAttribute() schema.Attribute {
	return optionalObject("Settings of `https` connections. Default: the certificates of the node's system, and "+
		"TLS 1.2 or later.", map[string]schema.Attribute{
		"ca_certificates": optionalString("PEM certificates of the authorities that may sign the target's certificate, instead of " +
			"those that the node's system trusts. Default: those of the system."),
		"client_certificate": optionalString("PEM certificate chain that the node presents. Default: none."),
		"client_key":         optionalObject("PEM private key of the client certificate. Default: none.", secretAttributes()),
		"min_version":        optionalString("`1.2` or `1.3`. Default: `1.2`."),
	})
}
