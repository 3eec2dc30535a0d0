package invoke

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

// nodeConfig is the AWS configuration of the node, which is loaded at first use.
type nodeConfig struct {
	load func(context.Context) (aws.Config, error)

	mu     sync.Mutex
	loaded *aws.Config // once it has been loaded
}

// get returns the AWS configuration of the node, and loads it if that has not succeeded yet. Attempts that begin at
// once may load it more than once.
func (n *nodeConfig) get(ctx context.Context) (aws.Config, error) {
	n.mu.Lock()
	loaded := n.loaded
	n.mu.Unlock()
	if loaded != nil {
		return loaded.Copy(), nil
	}
	found, err := n.load(ctx)
	if err != nil {
		return found, fmt.Errorf("load the AWS configuration of the node: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loaded == nil {
		n.loaded = &found
	}
	return n.loaded.Copy(), nil
}

// close closes idle connections.
func (n *nodeConfig) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loaded == nil {
		return
	}
	if client, ok := n.loaded.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		client.CloseIdleConnections()
	}
}

// LoadAWS loads the AWS configuration of the node from the environment, files and the instance role.
// Its keep-alive interval is shorter than the 350 s after which NAT gateways drop a connection.
func LoadAWS(ctx context.Context) (aws.Config, error) {
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
