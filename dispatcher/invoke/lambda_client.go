package invoke

import (
	"context"
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
	clients map[string]*lambda.Client // by region and role
}

func newFunctions(load func(context.Context) (aws.Config, error)) *functions {
	return &functions{load: load, clients: map[string]*lambda.Client{}}
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

// client returns the client for the region and role of a target.
func (f *functions) client(ctx context.Context, l *dispatcher.Lambda) (*lambda.Client, error) {
	region := l.FunctionRegion()
	role, err := json.Marshal(l.AssumeRole)
	if err != nil {
		return nil, err
	}
	key := region + " " + string(role)
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.clients[key]; ok {
		return c, nil
	}
	loaded, err := f.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration of the node: %w", err)
	}
	if region != "" {
		loaded.Region = region
	}
	if loaded.Region == "" {
		return nil, errors.New("neither the target nor the node names a region; set region, or AWS_REGION on the node")
	}
	if l.AssumeRole != nil {
		loaded.Credentials = aws.NewCredentialsCache(assume(loaded, *l.AssumeRole))
	}
	if loaded.Credentials == nil {
		return nil, errors.New("the node has no AWS credentials") // the SDK would send the request unsigned
	}
	// Each attempt is one Invoke: the engine retries, not the SDK.
	c := lambda.NewFromConfig(loaded, func(o *lambda.Options) {
		o.Retryer, o.HTTPClient = aws.NopRetryer{}, boundedClient{o.HTTPClient}
	})
	f.clients[key] = c
	return c, nil
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

func assume(node aws.Config, role dispatcher.AssumeRole) aws.CredentialsProvider {
	return stscreds.NewAssumeRoleProvider(sts.NewFromConfig(node), role.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = "carillon"
		if role.ExternalID != "" {
			o.ExternalID = aws.String(role.ExternalID)
		}
		for _, key := range slices.Sorted(maps.Keys(role.SessionTags)) {
			o.Tags = append(o.Tags, ststypes.Tag{Key: aws.String(key), Value: aws.String(role.SessionTags[key])})
		}
	})
}

// close closes idle connections.
func (f *functions) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		bounded, _ := c.Options().HTTPClient.(boundedClient)
		if client, ok := bounded.HTTPClient.(interface{ CloseIdleConnections() }); ok {
			client.CloseIdleConnections()
		}
	}
}
