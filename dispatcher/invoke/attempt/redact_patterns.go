package attempt

import "regexp"

// Patterns of likely secrets: AWS access key ids, bearer tokens, and values by their names.
var (
	accessKey   = regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	secretValue = regexp.MustCompile(
		`(?i)((?:password|passwd|secret|token|authorization|api[_-]?key|credential|private[_-]?key)` +
			`[a-z_-]*["']?\s*[:=]\s*["']?)[^\s"',;}]+`)
)

// Redact hides likely secrets, because functions may log secrets by mistake.
func Redact(text string) string {
	text = accessKey.ReplaceAllString(text, "***")
	text = bearer.ReplaceAllString(text, "$1 ***")
	return secretValue.ReplaceAllString(text, "$1***")
}

// AWS credentials and secrets in responses, in JSON and in XML, such as those of AssumeRole, CreateAccessKey and
// GetSecretValue. The end of a value may have been cut off.
const issuedNames = `(?:SecretAccessKey|SecretKey|SessionToken|AccessKeyId|AuthorizationToken|SecretString|SecretBinary|Token|Password)`

var (
	issuedJSON = regexp.MustCompile(`(?i)("` + issuedNames + `"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|$)`)
	issuedXML  = regexp.MustCompile(`(?i)(<` + issuedNames + `>)[^<]*`)
)

// HideCredentials removes from a response what a request with the credentials of the node may have been given.
func HideCredentials(text string) string {
	text = issuedXML.ReplaceAllString(issuedJSON.ReplaceAllString(text, `$1"***"`), "$1***")
	return accessKey.ReplaceAllString(text, "***")
}
