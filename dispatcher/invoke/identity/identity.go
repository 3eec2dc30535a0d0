// Package identity has the AWS identity of a node, and the roles that the node assumes for apps.
package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
)

// Loader loads the AWS configuration of a node.
type Loader func(context.Context) (aws.Config, error)

// Node is the AWS configuration of the node, which is loaded at first use.
type Node struct {
	Load Loader

	mu     sync.Mutex
	loaded *aws.Config // once it has been loaded
}

// Config returns the AWS configuration of the node, and loads it if that has not succeeded yet. Attempts that begin at
// once may load it more than once.
func (n *Node) Config(ctx context.Context) (aws.Config, error) {
	n.mu.Lock()
	loaded := n.loaded
	n.mu.Unlock()
	if loaded != nil {
		return loaded.Copy(), nil
	}
	found, err := n.Load(ctx)
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

// Close closes idle connections.
func (n *Node) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loaded == nil {
		return
	}
	if client, ok := n.loaded.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		client.CloseIdleConnections()
	}
}

// Load loads the AWS configuration of the node from the environment, files and the instance role.
// Its keep-alive interval is shorter than the 350 s after which NAT gateways drop a connection.
func Load(ctx context.Context) (aws.Config, error) {
	client := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout, d.KeepAlive = attempt.ConnectTimeout, 15*time.Second
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

// Region returns the AWS region of the node from its environment and files; empty if they have none.
func Region(ctx context.Context) string {
	loaded, err := Load(ctx)
	if err != nil {
		return "" // the first call of a function reports it
	}
	return loaded.Region
}

// Role is a role that is assumed for an app.
type Role struct{ ARN, App, ExternalID string }

// Assume assumes a role with the identity of an app, so that trust policies and CloudTrail can distinguish apps. A
// tenant chooses no part of that identity.
func Assume(node aws.Config, of Role, tags map[string]string) aws.CredentialsProvider {
	return stscreds.NewAssumeRoleProvider(sts.NewFromConfig(node), of.ARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = sessionName(of.App)
		o.ExternalID = aws.String(of.ExternalID)
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			o.Tags = append(o.Tags, ststypes.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
		}
	})
}

// sessionName returns the name of the role sessions of an app: carillon-APP, of at most 64 characters. A longer one
// ends in a dot, which no name of an app has, and a hash.
func sessionName(app string) string {
	const most, digits = 64, 10
	name := "carillon-" + app
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(app))
	return name[:most-digits-1] + "." + hex.EncodeToString(sum[:])[:digits]
}
