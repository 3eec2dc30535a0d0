package target

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// GroupKind is the protocol that the endpoints of a group speak.
type GroupKind string

// The kinds of groups.
const (
	GroupHTTP   GroupKind = "http"    // each endpoint is a web server that a job's request goes to
	GroupXXLJob GroupKind = "xxl_job" // each endpoint is an executor of XXL-JOB
)

// GroupKinds are all kinds of groups.
var GroupKinds = []GroupKind{GroupHTTP, GroupXXLJob}

// XXLJobSettings are those of a group of kind xxl_job. Other groups have none.
type XXLJobSettings struct {
	// AppName is the AppName of XXL-JOB that executors register under; empty: the name of the group.
	AppName string `json:"app_name,omitempty"`
	// AccessToken is what executors and Carillon prove to one another that they belong together by. A group of kind
	// xxl_job must have one.
	AccessToken *Secret `json:"access_token,omitempty"`
}

// xxlJobName is the form of an AppName, and of the name of a JobHandler.
var xxlJobName = regexp.MustCompile(`^[^\x00-\x20\x7f]{1,255}$`)

// check reports what does not fit the kind of g.
func (g EndpointGroup) checkKind(problems *input.Problems) {
	if g.Kind != "" {
		input.CheckEnum(problems, "/kind", "kind", g.Kind, GroupKinds)
	}
	if g.Kind != GroupXXLJob {
		if g.AppName != "" {
			problems.Add("/app_name", input.CodeGroupKind, "only a group of kind xxl_job has an app_name; leave it out")
		}
		if g.AccessToken != nil {
			problems.Add("/access_token", input.CodeGroupKind, "only a group of kind xxl_job has an access_token; others authenticate by auth")
		}
		return
	}
	if g.AppName != "" && !xxlJobName.MatchString(g.AppName) {
		problems.Add("/app_name", input.CodeTextInvalid, "app_name holds a space or a control character, or more than 255 characters")
	}
	if g.AccessToken == nil {
		problems.Add("/access_token", input.CodeRequired, "access_token is missing; without one, anyone could register as an executor")
	} else {
		g.AccessToken.check(problems, "/access_token", accessTokenForm)
	}
	if g.Signing != nil {
		problems.Add("/signing", input.CodeGroupKind, "executors of XXL-JOB check no signature; leave signing out")
	}
	if g.Auth != nil {
		problems.Add("/auth", input.CodeGroupKind, "executors of XXL-JOB know only the access_token; leave auth out")
	}
	if g.HealthCheck != nil {
		problems.Add("/health_check", input.CodeGroupKind, "executors of XXL-JOB have no path to check; leave health_check out, and choose "+
			"strategy failover, which asks them by /beat")
	}
}

// minAccessToken is the least length of an access token, in bytes: anyone who guesses it can register as an executor.
const minAccessToken = 16

// accessTokenForm checks the value of an access token. The value is never shown.
func accessTokenForm(value string) error {
	switch {
	case value == "default_token":
		return &input.Problem{Code: input.CodeSecretLength,
			Message: "access_token is the one that XXL-JOB's example configuration has, which everyone " +
				"knows; choose another one of at least 16 bytes, here and in xxl.job.accessToken of the executors"}
	case len(value) < minAccessToken:
		return &input.Problem{Code: input.CodeSecretLength,
			Message: fmt.Sprintf("access_token has %d bytes; the minimum is %d, because anyone who "+
				"guesses it can register as an executor", len(value), minAccessToken)}
	}
	return headerForm(value)
}

// ExecutorName returns the AppName that executors of g register under.
func (g EndpointGroup) ExecutorName() string {
	if g.AppName == "" {
		return g.Name
	}
	return g.AppName
}

// ExecutorEndpointID returns the id of the executor at a URL: its IPv4 address and port with dashes, such as
// 10-0-3-17-9999, and the beginning of a hash if the URL has anything else, so that no two have one id.
func ExecutorEndpointID(text string) string {
	const most, hashed = 40, 4 // characters, bytes
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "http" && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.User == nil {
		if addr, err := netip.ParseAddrPort(u.Host); err == nil && addr.Addr().Is4() {
			return strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
		}
	}
	host := ""
	if err == nil {
		host = strings.Trim(notInName.ReplaceAllString(strings.ToLower(u.Host), "-"), "-")
	}
	sum := sha256.Sum256([]byte(strings.TrimSuffix(text, "/")))
	return strings.TrimPrefix(host[:min(len(host), most)]+"-"+hex.EncodeToString(sum[:hashed]), "-")
}

// notInName are runs of characters that ids do not have.
var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// CheckReplaces returns a problem if g cannot replace old, because it is of another kind: the jobs of the group, and its
// endpoints, are made for one.
func (g EndpointGroup) CheckReplaces(old EndpointGroup) error {
	was, is := old.Resolved().Kind, g.Resolved().Kind
	if was == is {
		return nil
	}
	return &input.Problem{Path: "/kind", Code: input.CodeGroupKind,
		Message: "group is of kind " + string(was) + " and cannot become " + string(is) + "; make another group"}
}

// CheckGroup returns a problem if a job's target does not fit the kind of the group that it names. The pointer is that in
// a job.
func (t Target) CheckGroup(group EndpointGroup) error {
	if t.Group == nil {
		return nil
	}
	kind := group.Resolved().Kind
	switch isRun := t.Group.XXLJob != nil; {
	case kind == GroupXXLJob && !isRun:
		return &input.Problem{Path: "/target/group/xxl_job", Code: input.CodeGroupKind, Message: "group " + input.Echo(group.Name) +
			" is of kind xxl_job, so the target has to say which handler runs; add xxl_job with a handler"}
	case kind != GroupXXLJob && isRun:
		return &input.Problem{Path: "/target/group/xxl_job", Code: input.CodeGroupKind, Message: "group " + input.Echo(group.Name) +
			" is of kind " + string(kind) + ", whose endpoints know no handlers; leave xxl_job out, or name a group of kind xxl_job"}
	}
	return nil
}
