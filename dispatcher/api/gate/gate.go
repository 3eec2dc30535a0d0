package gate

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Options tune a Gate. The zero value works, except for Logger.
type Options struct {
	// Identities checks bearer tokens that are JSON Web Tokens; nil: none is accepted.
	Identities Identities
	// AccessTokens checks tokens of groups; nil: no caller is an executor.
	AccessTokens AccessTokens
	// ClientCertificates requires a client certificate that the server has verified, in addition to a token.
	ClientCertificates bool
	// Limits bound the resources that callers can use.
	Limits Limits
	// Registerer is where the metrics of the gate are registered; nil: nowhere.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Identities finds the owner of a JSON Web Token.
type Identities interface {
	// Identify returns the token for the identity, with an id that begins with "oidc:". An error with a method
	// BadToken, which returns the reason, means that the JWT is not valid or that no rule fits it. Any other error
	// means that it could not be checked. No error holds the JWT or a part of it.
	Identify(ctx context.Context, jwt string, now time.Time) (access.APIToken, error)
}

// identityPrefix begins the ids of tokens for identities of an issuer.
const identityPrefix = "oidc:"

// AccessTokens checks the tokens of executors of groups of kind xxl_job. The call names the group with the values of
// its secrets.
type AccessTokens interface {
	// IsAccessToken reports whether a text is the token of the group. It returns an error if the token cannot be read.
	IsAccessToken(ctx context.Context, of target.ExecutorCall, text string) (bool, error)
}

// Store is the part of a store that the gate uses, for tokens, conditions and bounds.
type Store interface {
	TokenByHash(ctx context.Context, hash [32]byte) (access.APIToken, error)
	UseTokens(ctx context.Context, used map[string]time.Time) error
	CallbackKey(ctx context.Context) ([]byte, error)
	Run(ctx context.Context, id string) (run.Run, error)
	GroupVersion(ctx context.Context, app, name string, now time.Time) (target.GroupVersion, error)

	App(ctx context.Context, name string) (access.App, error)
	Job(ctx context.Context, app, name string) (dispatcher.Job, error)
	Calendar(ctx context.Context, app, name string) (dispatcher.Calendar, error)
	Group(ctx context.Context, app, name string) (target.EndpointGroup, error)
	Alert(ctx context.Context, app, name string) (alert.Alert, error)
	Token(ctx context.Context, name string) (access.APIToken, error)
	CarriedState(ctx context.Context, app, job string) (run.CarriedState, error)

	AuditEntries(ctx context.Context, query access.AuditQuery) (access.AuditPage, error)
	RecordRefusal(ctx context.Context, entry access.AuditEntry) error
}

// Gate checks each request of the API before it is served.
type Gate struct {
	store  Store
	tokens *tokenCache // of store
	opts   Options
	log    *slog.Logger
	limits *limits // nil while there is no store
	// refusals go into the audit log.
	refusals *refusals
	// outage are the tokens that read metrics during an outage of the database.
	outage outageTokens
	// uses are the uses of tokens that are not yet recorded.
	uses tokenUses
	// evaluations bounds the requests that evaluate schedules.
	evaluations evaluations
	// work bounds the time of each app's requests.
	work *work
	// callbackKey is the key of callback tokens, once it is read.
	callbackKey callbackKey
}

// New returns the gate in front of store.
func New(store Store, o Options) *Gate {
	bounds := newLimits(o.Limits, o.Registerer)
	return &Gate{
		store: store, opts: o, log: o.Logger, limits: bounds, work: newWork(),
		tokens: &tokenCache{store: store, kept: bounds.TokenCache, tokens: cache.New[[32]byte, cachedToken](maxCallers)},
		refusals: &refusals{
			store: store, log: o.Logger, queue: make(chan access.AuditEntry, maxRefusals), of: map[string]*refusedToken{},
		},
		evaluations: evaluations{limit.NewPlaces(), max(1, runtime.GOMAXPROCS(0)/2)},
		outage:      outageTokens{byHash: map[[32]byte]access.APIToken{}},
	}
}

// Starting returns the gate while there is no store yet, and so nothing to protect. No route may need a token.
func Starting(o Options) *Gate { return &Gate{opts: o, log: o.Logger} }

// Run writes refused changes into the audit log and records the use of tokens until ctx ends, and then the rest, for
// half a second at most.
func (g *Gate) Run(ctx context.Context) {
	var writers sync.WaitGroup
	writers.Go(func() { g.refusals.run(ctx) })
	writers.Go(func() { g.runUses(ctx) })
	writers.Wait()
}
