package target

import (
	"net/netip"
	"regexp"
	"strings"
)

// ShownRequest is the request of a run as its job would send it now, for people: every secret is masked, and what was made with
// one, such as a signature, too.
type ShownRequest struct {
	Run string `json:"run" schema:"RunID"`
	// Attempt is the attempt that the request would be of: the latest one of the run, or the first.
	Attempt int `json:"attempt"`
	// Revision is that of the job as it is now, RunRevision the one of the run: if they differ, the run may have sent another
	// request.
	Revision int64 `json:"revision"`
	// Revision of the run. If it differs, the run may have sent another request.
	RunRevision int64 `json:"run_revision"`
	// Target is the kind of the target.
	Target Kind `json:"target"`
	// Problem says why no request can be made, such as a template that cannot be filled in; empty: none.
	Problem string `json:"problem,omitempty"`
	// Of a webhook or an endpoint group. Endpoint is the member of the group that the latest attempt went to; empty: none is
	// known, and the URL has ENDPOINT in its place.
	Method string `json:"method,omitempty"`
	// Of a group without a known endpoint, ENDPOINT stands for its host.
	URL string `json:"url,omitempty"`
	// The member of the group that the attempt went to.
	Endpoint string `json:"endpoint,omitempty"`
	// In the order of their names.
	Headers []ShownHeader `json:"headers,omitempty"`
	// Of a Lambda function: its name or ARN, how it is invoked, and the client context.
	Function      string `json:"function,omitempty"`
	Invocation    string `json:"invocation,omitempty"`
	ClientContext string `json:"client_context,omitempty"`
	// Of a queue or topic: its ARN, and what comes with the message.
	Queue string `json:"queue,omitempty"`
	// ARN of the SNS topic.
	Topic           string            `json:"topic,omitempty"`
	Subject         string            `json:"subject,omitempty"`
	Attributes      map[string]string `json:"attributes,omitempty"`
	MessageGroupID  string            `json:"message_group_id,omitempty"`
	DeduplicationID string            `json:"deduplication_id,omitempty"`
	// Body is the body of a webhook, the event of a function or the body of a message, as text of at most 64 KiB.
	Body string `json:"body,omitempty"`
	// Masked names what is masked or left out, in words: "auth bearer token", "signature by primary".
	Masked []string `json:"masked,omitempty"`
}

// ShownHeader is one header of a ShownRequest.
type ShownHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Masked says that the value is not what is sent.
	Masked bool `json:"masked,omitempty"`
}

// Mask stands for a secret that is not shown.
const Mask = "[masked]"

// HiddenAddress stands for an address in the text of an error.
const HiddenAddress = "(address)"

// addressLike matches what may be an address, with a port or without, and the length of a prefix after it.
var addressLike = regexp.MustCompile(`(\[?[0-9A-Fa-f:.]*[:.][0-9A-Fa-f:.]*(?:%[0-9A-Za-z._-]+)?\]?(?::[0-9]+)?)(/[0-9]+)?`)

// HideAddresses returns a text with HiddenAddress for each IP address in it, with its port, and the addresses. Apps see the
// text: what a name leads to, and which name server says so, tells about the network of the operator. own, the address that
// the job itself names, stays; so do networks, which rules name. The zero Addr is none.
func HideAddresses(text string, own netip.Addr) (shown string, hidden []string) {
	shown = addressLike.ReplaceAllStringFunc(text, func(match string) string {
		parts := addressLike.FindStringSubmatch(match)
		found := strings.TrimRight(parts[1], ":.")
		addr, ok := addressIn(found)
		if !ok || own.IsValid() && addr.Unmap() == own.Unmap() || isNetwork(found+parts[2]) {
			return match
		}
		hidden = append(hidden, found)
		return HiddenAddress + match[len(found):]
	})
	return shown, hidden
}

// addressIn returns the address that a text is, with a port or without.
func addressIn(text string) (netip.Addr, bool) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr(), true
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return addr, err == nil
}

// isNetwork tells whether a text is a network, and no address with more than a network.
func isNetwork(text string) bool {
	network, err := netip.ParsePrefix(text)
	return err == nil && network == network.Masked()
}
