package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// functions invokes Lambda functions. It uses the HTTP client of the SDK, without the egress guard:
// the operator chooses the endpoint (AWS_ENDPOINT_URL_LAMBDA), and credentials come from link-local
// addresses that webhooks may not call. A job only chooses a region, which has a fixed format.
type functions struct {
	load func(context.Context) (aws.Config, error)

	mu      sync.Mutex
	loaded  *aws.Config // once it has been loaded
	clients map[clientKey]*functionClient
}

// clientKey tells apart the clients. Clients of the node itself have only a region: no app has a part in them.
type clientKey struct{ region, role, externalID, app, job, tags string }

// functionClient is a client, and when it was used last.
type functionClient struct {
	*lambda.Client
	used time.Time
}

// mostFunctionClients bounds the clients that are kept. One takes some kilobytes; a role that is used again is assumed
// again.
const mostFunctionClients = 1000

func newFunctions(load func(context.Context) (aws.Config, error)) *functions {
	return &functions{load: load, clients: map[clientKey]*functionClient{}}
}

// loadAWS loads the AWS configuration of the node from the environment, files and the instance role.
// Its keep-alive interval is shorter than the 350 s after which NAT gateways drop a connection.
func loadAWS(ctx context.Context) (aws.Config, error) {
	client := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout, d.KeepAlive = connectTimeout, 15*time.Second
	})
	loaded, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client))
	if err != nil {
		return loaded, err
	}
	// This client keeps the SDK's settings from the environment, but it follows no redirects, which
	// would be a second request, and its connections can be closed.
	if made, ok := loaded.HTTPClient.(*awshttp.BuildableClient); ok {
		loaded.HTTPClient = &http.Client{
			Transport:     made.GetTransport(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return loaded, nil
}

// config returns the AWS configuration of the node, and loads it if that has not succeeded yet. Attempts that begin at
// once may load it more than once.
func (f *functions) config(ctx context.Context) (aws.Config, error) {
	f.mu.Lock()
	loaded := f.loaded
	f.mu.Unlock()
	if loaded != nil {
		return loaded.Copy(), nil
	}
	found, err := f.load(ctx)
	if err != nil {
		return found, fmt.Errorf("load the AWS configuration of the node: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded == nil {
		f.loaded = &found
	}
	return f.loaded.Copy(), nil
}

// client returns the client for the region and the role of a call.
func (f *functions) client(ctx context.Context, call dispatcher.Call, now time.Time) (*lambda.Client, error) {
	l := call.Target.Lambda
	key := clientKey{region: l.FunctionRegion()}
	if role := l.AssumeRole; role != nil {
		if call.AWSExternalID == "" {
			return nil, fmt.Errorf("app %s has no external id, so no role is assumed for it", call.App)
		}
		tags, err := json.Marshal(role.SessionTags)
		if err != nil {
			return nil, err
		}
		key = clientKey{key.region, role.RoleARN, call.AWSExternalID, call.App, call.Job, string(tags)}
	}
	f.mu.Lock()
	c, ok := f.clients[key]
	if ok {
		c.used = now
	}
	f.mu.Unlock()
	if ok {
		return c.Client, nil
	}
	made, err := f.newClient(ctx, call, key.region)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.clients[key]; ok { // another attempt made it meanwhile
		return c.Client, nil
	}
	if len(f.clients) >= mostFunctionClients {
		f.evict()
	}
	f.clients[key] = &functionClient{made, now}
	return made, nil
}

func (f *functions) newClient(ctx context.Context, call dispatcher.Call, region string) (*lambda.Client, error) {
	loaded, err := f.config(ctx)
	if err != nil {
		return nil, err
	}
	if region != "" {
		loaded.Region = region
	}
	if loaded.Region == "" {
		return nil, errors.New("neither the target nor the node names a region; set region, or AWS_REGION on the node")
	}
	if call.Target.Lambda.AssumeRole != nil {
		loaded.Credentials = aws.NewCredentialsCache(assume(loaded, call))
	}
	if loaded.Credentials == nil {
		return nil, errors.New("the node has no AWS credentials") // the SDK would send the request unsigned
	}
	// Each attempt is one Invoke: the engine retries, not the SDK.
	return lambda.NewFromConfig(loaded, func(o *lambda.Options) {
		o.Retryer, o.HTTPClient = aws.NopRetryer{}, boundedClient{o.HTTPClient}
	}), nil
}

// evict drops the tenth of the clients that have been unused for longest. Their connections are those of the others.
// f.mu is held.
func (f *functions) evict() {
	keys := slices.Collect(maps.Keys(f.clients))
	slices.SortFunc(keys, func(a, b clientKey) int { return f.clients[a].used.Compare(f.clients[b].used) })
	for _, key := range keys[:len(keys)/10] {
		delete(f.clients, key)
	}
}

// boundedClient cuts responses to the size that is kept. The SDK alone would read the whole response
// into memory, 6 MB for each of hundreds of attempts.
type boundedClient struct{ lambda.HTTPClient }

// Do makes a request.
func (c boundedClient) Do(r *http.Request) (*http.Response, error) {
	response, err := c.HTTPClient.Do(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, mostResponse+1), response.Body}
	}
	return response, err
}

// assume assumes the role of a call with the identity of its app, so that trust policies and CloudTrail tell apps apart.
// Nothing of that identity is a tenant's choice.
func assume(node aws.Config, call dispatcher.Call) aws.CredentialsProvider {
	role := *call.Target.Lambda.AssumeRole
	return stscreds.NewAssumeRoleProvider(sts.NewFromConfig(node), role.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = sessionName(call.App)
		o.ExternalID = aws.String(call.AWSExternalID)
		tags := maps.Clone(role.SessionTags)
		if tags == nil {
			tags = map[string]string{}
		}
		// Validate refuses other tags of the prefix; these replace them all the same.
		maps.DeleteFunc(tags, func(key, _ string) bool { return dispatcher.ReservedSessionTag(key) })
		tags[dispatcher.SessionTagApp], tags[dispatcher.SessionTagJob] = call.App, call.Job
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			o.Tags = append(o.Tags, ststypes.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
		}
	})
}

// sessionName returns the name of the role sessions of an app: carillon-APP, of at most 64 characters. The end of a longer
// one is a dot, which no name of an app has, and a hash.
func sessionName(app string) string {
	const most, digits = 64, 10
	name := "carillon-" + app
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(app))
	return name[:most-digits-1] + "." + hex.EncodeToString(sum[:])[:digits]
}

// close closes idle connections.
func (f *functions) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded == nil {
		return
	}
	if client, ok := f.loaded.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		client.CloseIdleConnections()
	}
}
