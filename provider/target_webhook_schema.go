package provider

import (
	"fmt"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

func (webhookTarget) attribute() schema.SingleNestedAttribute {
	var defaults target.Webhook
	defaults.SetDefaults()
	attributes := map[string]schema.Attribute{
		"url": requiredString("Absolute URL, `http` or `https`, of at most 2048 characters, without user, password " +
			"and fragment. The part after the host may be a template, like `body`; values are percent-encoded."),
		"signing": signingAttribute(),
		"auth":    authAttribute(),
		"tls":     tlsAttribute(),
	}
	maps.Copy(attributes, requestAttributes(defaults))
	return optionalObject("An HTTP request. Any 2xx response is a success, and redirects are not followed. Default: the target is "+
		"of another kind.", attributes)
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
				nameRule, target.MaxSigningSecrets),
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
