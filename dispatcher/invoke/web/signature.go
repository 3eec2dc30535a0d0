package web

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// sign returns the header webhook-signature of Standard Webhooks: one signature for each secret, in
// the order of their names.
func (h *Webhooks) sign(
	ctx context.Context, r *Request, s *target.Signing, id string, at time.Time,
) (string, error) {
	names := slices.Sorted(maps.Keys(s.Secrets))
	head := append(strconv.AppendInt(append(make([]byte, 0, 64), id+"."...), at.Unix(), 10), '.')
	header := make([]byte, 0, 64)
	for _, name := range names {
		text, err := h.Reveal(ctx, r, "signing "+name, s.Secrets[name], at)
		if err != nil {
			return "", err
		}
		if len(header) > 0 {
			header = append(header, ' ')
		}
		if header, err = appendSignature(header, text, head, r.Body); err != nil {
			return "", attempt.BadSecret("signing "+name, err)
		}
	}
	return string(header), nil
}

// appendSignature appends the signature of head and body by one secret.
func appendSignature(header []byte, secret string, head, body []byte) ([]byte, error) {
	key, err := target.ParseSigningKey(secret)
	if err != nil {
		return nil, err
	}
	if key.Private != nil {
		signature := ed25519.Sign(key.Private, slices.Concat(head, body))
		return base64.StdEncoding.AppendEncode(append(header, "v1a,"...), signature), nil
	}
	mac := hmac.New(sha256.New, key.HMAC)
	mac.Write(head)
	mac.Write(body)
	return base64.StdEncoding.AppendEncode(append(header, "v1,"...), mac.Sum(nil)), nil
}

// Authorize adds the credentials of a webhook to a request. A request that it has signed must not
// change afterwards.
func (h *Webhooks) Authorize(ctx context.Context, r *Request, a *target.Auth, now time.Time) error {
	switch {
	case a.Basic != nil:
		password, err := h.Reveal(ctx, r, "auth basic password", a.Basic.Password, now)
		if err != nil {
			return err
		}
		both := base64.StdEncoding.EncodeToString([]byte(a.Basic.Username + ":" + password))
		r.hide(both)
		r.Header["Authorization"] = []string{"Basic " + both}
	case a.Bearer != nil:
		token, err := h.Reveal(ctx, r, "auth bearer token", a.Bearer.Token, now)
		if err != nil {
			return err
		}
		r.Header["Authorization"] = []string{"Bearer " + token}
	case a.APIKey != nil:
		return h.addAPIKey(ctx, r, a.APIKey, now)
	case a.SigV4 != nil:
		return h.signV4(ctx, r, a.SigV4, now)
	case a.OAuth2 != nil:
		return h.addToken(ctx, r, a.OAuth2, now)
	}
	return nil
}

func (h *Webhooks) addAPIKey(ctx context.Context, r *Request, a *target.APIKeyAuth, now time.Time) error {
	key, err := h.Reveal(ctx, r, "auth api_key key", a.Key, now)
	if err != nil {
		return err
	}
	if a.Header != "" {
		r.Header.Set(a.Header, key)
		return nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return err // impossible: Validate has checked the URL
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += url.QueryEscape(a.Query) + "=" + url.QueryEscape(key)
	r.URL = u.String()
	return nil
}

func (h *Webhooks) signV4(ctx context.Context, r *Request, a *target.SigV4Auth, now time.Time) error {
	if a.Credentials == nil {
		// The engine has checked the job. This checks the request: its URL may come from a template.
		hook := &target.Webhook{URL: r.URL, Auth: &target.Auth{SigV4: a}}
		err := r.Bounds.CheckTarget(r.App, target.Target{Webhook: hook})
		if err != nil {
			return attempt.OutOfBounds(err)
		}
		r.signedAsNode = true
	}
	credentials, err := h.awsCredentials(ctx, r, a.Credentials, now)
	if err != nil {
		return err
	}
	r.hide(credentials.AccessKeyID, credentials.SecretAccessKey, credentials.SessionToken)
	signed, err := http.NewRequestWithContext(ctx, r.Method, r.URL, nil)
	if err != nil {
		return err // impossible: Validate has checked the URL
	}
	signed.Header, signed.ContentLength = r.Header, int64(len(r.Body))
	if r.host != "" {
		signed.Host = r.host
	}
	sum := sha256.Sum256(r.Body)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, signed, hex.EncodeToString(sum[:]), a.Service, a.Region, now); err != nil {
		return err
	}
	_, signature, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	r.hide(signature)
	return nil
}

// awsCredentials returns the credentials of a target, or those of the node if it has none.
func (h *Webhooks) awsCredentials(
	ctx context.Context, r *Request, c *target.AWSCredentials, now time.Time,
) (aws.Credentials, error) {
	if c == nil {
		if node, err := h.node.Config(ctx); err == nil && node.Credentials != nil {
			if found, err := node.Credentials.Retrieve(ctx); err == nil {
				return found, nil
			}
		}
		return aws.Credentials{}, attempt.BadSecret("auth sigv4",
			errors.New("this node has no AWS credentials in its environment, its files or its instance role"))
	}
	key, err := h.Reveal(ctx, r, "auth sigv4 secret_access_key", c.SecretAccessKey, now)
	if err != nil {
		return aws.Credentials{}, err
	}
	found := aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: key}
	if c.SessionToken != nil {
		found.SessionToken, err = h.Reveal(ctx, r, "auth sigv4 session_token", *c.SessionToken, now)
	}
	return found, err
}
