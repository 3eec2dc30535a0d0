package target

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/carillon-dev/carillon/dispatcher"
)

// authorize makes a request say who calls. What it signs must not change afterwards.
func (i *Invoker) authorize(ctx context.Context, r *request, a *dispatcher.Auth, now time.Time) error {
	switch {
	case a.Basic != nil:
		password, err := i.reveal("auth basic password", a.Basic.Password, now)
		if err != nil {
			return err
		}
		r.header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(a.Basic.Username+":"+password))}
	case a.Bearer != nil:
		token, err := i.reveal("auth bearer token", a.Bearer.Token, now)
		if err != nil {
			return err
		}
		r.header["Authorization"] = []string{"Bearer " + token}
	case a.APIKey != nil:
		return i.addAPIKey(r, a.APIKey, now)
	case a.SigV4 != nil:
		return i.signV4(ctx, r, a.SigV4, now)
	}
	return nil
}

func (i *Invoker) addAPIKey(r *request, a *dispatcher.APIKeyAuth, now time.Time) error {
	key, err := i.reveal("auth api_key key", a.Key, now)
	if err != nil {
		return err
	}
	if a.Header != "" {
		r.header.Set(a.Header, key)
		return nil
	}
	u, err := url.Parse(r.url)
	if err != nil {
		return err // which Validate refuses
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += url.QueryEscape(a.Query) + "=" + url.QueryEscape(key)
	r.url = u.String()
	return nil
}

// reveal returns what a secret is; field names it in the error.
func (i *Invoker) reveal(field string, secret dispatcher.Secret, now time.Time) (string, error) {
	text, err := i.secrets.reveal(secret, now)
	if err == nil && strings.ContainsAny(text, "\r\n\x00") {
		err = errors.New("it holds a control character such as CR, LF or NUL")
	}
	if err != nil {
		return "", &secretError{field, err}
	}
	return text, nil
}

func (i *Invoker) signV4(ctx context.Context, r *request, a *dispatcher.SigV4Auth, now time.Time) error {
	credentials, err := i.awsCredentials(ctx, a.Credentials, now)
	if err != nil {
		return err
	}
	signed, err := http.NewRequestWithContext(ctx, r.method, r.url, nil)
	if err != nil {
		return err // which Validate refuses
	}
	signed.Header, signed.ContentLength = r.header, int64(len(r.body))
	sum := sha256.Sum256(r.body)
	return v4.NewSigner().SignHTTP(ctx, credentials, signed, hex.EncodeToString(sum[:]), a.Service, a.Region, now)
}

// awsCredentials returns the credentials that a target names, or those of the node.
func (i *Invoker) awsCredentials(ctx context.Context, c *dispatcher.AWSCredentials, now time.Time) (aws.Credentials, error) {
	if c == nil {
		found, err := i.node.retrieve(ctx)
		if err != nil {
			return found, &secretError{"auth sigv4", errors.New("this node has no AWS credentials of its own, by environment, files or instance")}
		}
		return found, nil
	}
	key, err := i.reveal("auth sigv4 secret_access_key", c.SecretAccessKey, now)
	if err != nil {
		return aws.Credentials{}, err
	}
	found := aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: key}
	if c.SessionToken != nil {
		found.SessionToken, err = i.reveal("auth sigv4 session_token", *c.SessionToken, now)
	}
	return found, err
}

// awsNode finds the credentials of this node when they are first asked for, and renews them.
type awsNode struct {
	mu       sync.Mutex
	provider aws.CredentialsProvider
}

func (n *awsNode) retrieve(ctx context.Context) (aws.Credentials, error) {
	n.mu.Lock()
	provider := n.provider
	if provider == nil {
		found, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			n.mu.Unlock()
			return aws.Credentials{}, err
		}
		provider = found.Credentials
		n.provider = provider
	}
	n.mu.Unlock()
	return provider.Retrieve(ctx)
}
