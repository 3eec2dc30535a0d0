package target

import (
	"net/netip"
	"regexp"
	"strings"
)

// ShownRequest is the request of a run as its job would send it now, for people: every secret is masked, and so are
// values made with one, such as signatures.
type ShownRequest struct {
	Run string `json:"run" schema:"RunID"`
	// Attempt is the attempt of the request: the latest one of the run, or the first.
	Attempt int `json:"attempt"`
	// Revision is the current revision of the job, and RunRevision that of the run: if they differ, the run may have
	// sent another request.
	Revision int64 `json:"revision"`
	// Revision of the run. If it differs, the run may have sent another request.
	RunRevision int64 `json:"run_revision"`
	// Target is the kind of the target.
	Target Kind `json:"target"`
	// Problem is why no request can be made, such as a template that cannot be filled in; empty if there is none.
	Problem string `json:"problem,omitempty"`
	// For a webhook or an endpoint group. Endpoint is the member of the group that the latest attempt went to. If it
	// is empty, it is not known, and the URL has ENDPOINT in its place.
	Method string `json:"method,omitempty"`
	// For a group without a known endpoint, ENDPOINT stands for its host.
	URL string `json:"url,omitempty"`
	// The member of the group that the attempt went to.
	Endpoint string `json:"endpoint,omitempty"`
	// Handler is the handler of an executor, for a group of kind xxl_job.
	Handler string `json:"handler,omitempty"`
	// In the order of their names.
	Headers []ShownHeader `json:"headers,omitempty"`
	// For a Lambda function: its name or ARN, how it is invoked, and the client context.
	Function      string `json:"function,omitempty"`
	Invocation    string `json:"invocation,omitempty"`
	ClientContext string `json:"client_context,omitempty"`
	// For a queue or topic: its ARN, and the parts of the message besides the body.
	Queue string `json:"queue,omitempty"`
	// ARN of the SNS topic.
	Topic           string            `json:"topic,omitempty"`
	Subject         string            `json:"subject,omitempty"`
	Attributes      map[string]string `json:"attributes,omitempty"`
	MessageGroupID  string            `json:"message_group_id,omitempty"`
	DeduplicationID string            `json:"deduplication_id,omitempty"`
	// Body is the body of a webhook, the event of a function or the body of a message, as text of at most 64 KiB.
	Body string `json:"body,omitempty"`
	// Masked names the masked or omitted values, in words: "auth bearer token", "signature by primary".
	Masked []string `json:"masked,omitempty"`
}

// ShownHeader is one header of a ShownRequest.
type ShownHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Masked is true if another value is sent.
	Masked bool `json:"masked,omitempty"`
}

// Mask stands for a secret that is not shown.
const Mask = "[masked]"

// HiddenAddress stands for an address in the text of an error.
const HiddenAddress = "(address)"

// addressLike matches a possible address, with or without a port, and the length of a prefix after it.
var addressLike = regexp.MustCompile(`(\[?[0-9A-Fa-f:.]*[:.][0-9A-Fa-f:.]*(?:%[0-9A-Za-z._-]+)?\]?(?::[0-9]+)?)(/[0-9]+)?`)

// HideAddresses returns a text with HiddenAddress for each IP address in it, with its port, and the addresses. Apps
// see the text, and addresses of targets and name servers would reveal the network of the operator. own, the address
// that the job itself names, or the zero Addr, stays; so do networks, which rules name.
func HideAddresses(text string, own netip.Addr) (shown string, hidden []string) {
	shown = addressLike.ReplaceAllStringFunc(text, func(match string) string {
		parts := addressLike.FindStringSubmatch(match)
		found := strings.TrimRight(parts[1], ":.")
		addr, ok := addressIn(found)
		network, noNetwork := netip.ParsePrefix(found + parts[2])
		if !ok || own.IsValid() && addr.Unmap() == own.Unmap() || noNetwork == nil && network == network.Masked() { // without host bits
			return match
		}
		hidden = append(hidden, found)
		return HiddenAddress + match[len(found):]
	})
	return shown, hidden
}

// addressIn parses a text as an address, with or without a port.
func addressIn(text string) (netip.Addr, bool) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr(), true
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return addr, err == nil
}
