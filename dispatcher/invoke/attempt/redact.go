package attempt

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// redacted stands for a secret.
const redacted = "[redacted]"

// leastSecret is the length of the shortest text that is removed: shorter ones occur in many responses by chance.
const leastSecret = 4

// Redaction removes the secrets of a request from the response of its target, because a response may repeat them, as
// they are or as receivers encode them.
type Redaction struct {
	secrets []string
	forms   func() []string
}

// NewRedaction returns a Redaction for some secrets. It costs nothing until a text is cleaned.
func NewRedaction(secrets []string) Redaction {
	return Redaction{secrets, sync.OnceValue(func() []string { return formsOf(secrets) })}
}

// Clean removes the secrets from a whole text.
func (r Redaction) Clean(text string) string {
	if text == "" || len(r.secrets) == 0 {
		return text
	}
	for _, form := range r.forms() {
		text = strings.ReplaceAll(text, form, redacted)
	}
	return text
}

// CleanCut removes the secrets from a text that may have been cut, possibly within a secret.
func (r Redaction) CleanCut(text string) string {
	text = r.Clean(text)
	if text == "" || len(r.secrets) == 0 {
		return text
	}
	longest := 0
	for _, form := range r.forms() {
		for n := min(len(form)-1, len(text)); n >= leastSecret && n > longest; n-- {
			if strings.HasSuffix(text, form[:n]) {
				longest = n
			}
		}
	}
	if longest > 0 {
		text = text[:len(text)-longest] + redacted
	}
	return text
}

// formsOf returns the forms in which receivers repeat secrets, the longest first: one may contain another.
func formsOf(secrets []string) (all []string) {
	for _, secret := range secrets {
		if len(secret) < leastSecret {
			continue
		}
		all = append(all, secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))))
		for _, encoded := range slices.Concat(inJSON(secret), inURL(secret), inHTML(secret), inBase64(secret)) {
			if len(encoded) >= leastSecret {
				all = append(all, encoded)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// inJSON returns a text as encoders of JSON write it: with and without \u for <, > and &, with \/ for /, and with \u
// for all characters outside ASCII.
func inJSON(text string) []string {
	var plain strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string always has JSON
	bare := strings.Trim(strings.TrimSuffix(plain.String(), "\n"), " ")
	bare = bare[1 : len(bare)-1]
	withHTML, _ := json.Marshal(text)
	escaped := string(withHTML[1 : len(withHTML)-1])
	var all []string
	for _, form := range []string{bare, escaped} {
		all = append(all, form, strings.ReplaceAll(form, "/", `\/`), ascii(form), strings.ReplaceAll(ascii(form), "/", `\/`))
	}
	return all
}

// ascii writes all other characters as \u and four digits.
func ascii(text string) string {
	var b strings.Builder
	const digits = "0123456789abcdef"
	unit := func(r rune) {
		b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			b.WriteByte(digits[r>>shift&15])
		}
	}
	for _, r := range text {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			unit(0xd800 + (r-0x10000)>>10)
			unit(0xdc00 + (r-0x10000)&0x3ff)
		default:
			unit(r)
		}
	}
	return b.String()
}

// inURL returns a text as in queries and paths, with the digits of escapes in capitals and not.
func inURL(text string) (all []string) {
	query := url.QueryEscape(text)
	for _, form := range []string{query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(text)} {
		all = append(all, form, escape.ReplaceAllStringFunc(form, strings.ToLower))
	}
	return all
}

// inHTML returns a text as in pages.
func inHTML(text string) []string {
	escaped := html.EscapeString(text) // &#34; and &#39;
	named := strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;").Replace(escaped)
	hexed := strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;").Replace(escaped)
	padded := strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#039;").Replace(escaped)
	bare := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text) // between tags
	return []string{escaped, named, hexed, padded, bare}
}

// inBase64 returns a text in base64, alone and as a part of a longer text: then it begins at the first, second or third
// byte of a group, and only the characters that depend on nothing else stay the same.
func inBase64(text string) (all []string) {
	const least = 8 // characters of a part: shorter ones occur by chance
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		all = append(all, encoding.EncodeToString([]byte(text)))
		for before := range 3 {
			bits := before * 8
			encoded := encoding.EncodeToString(append(make([]byte, before), text...))
			part := encoded[(bits+5)/6 : (before+len(text))*8/6]
			if len(part) >= least {
				all = append(all, part)
			}
		}
	}
	return all
}

// Patterns of likely secrets: AWS access key ids, bearer tokens, and values by their names.
var (
	escape      = regexp.MustCompile(`%..`) // in a URL
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

// HideCredentials removes from a response the credentials that a request of the node may have received.
func HideCredentials(text string) string {
	text = issuedXML.ReplaceAllString(issuedJSON.ReplaceAllString(text, `$1"***"`), "$1***")
	return accessKey.ReplaceAllString(text, "***")
}
