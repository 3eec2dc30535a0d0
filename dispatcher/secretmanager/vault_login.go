package secretmanager

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// VaultToken logs in with a token that something else renews, such as Vault Agent.
type VaultToken struct {
	Token string
	// File holds the token instead. It is read for each request, so that a renewed token is used at once.
	File string
}

func (t VaultToken) login(context.Context, string, time.Time) (vaultLoginRequest, error) {
	if t.File == "" {
		return vaultLoginRequest{token: t.Token}, nil
	}
	text, err := readToken(t.File)
	return vaultLoginRequest{token: text}, err
}

// readToken reads a token from a file. The file may be replaced at the moment, so an error may be over soon.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if token := strings.TrimSpace(string(text)); err == nil && token != "" {
		return token, nil
	}
	return "", &Error{Kind: Unreachable, Manager: vaultName, Code: "the file with the node's token for it cannot be read"}
}

// VaultKubernetes logs in with the token of a service account.
type VaultKubernetes struct {
	Mount string // of the auth method; usually kubernetes
	File  string // of the service account's token
}

func (k VaultKubernetes) login(_ context.Context, role string, _ time.Time) (vaultLoginRequest, error) {
	token, err := readToken(k.File)
	return vaultLoginRequest{mount: k.Mount, body: map[string]string{"role": role, "jwt": token}}, err
}

// VaultAWS logs in with AWS credentials (auth method aws, type iam): it signs a request to STS that Vault sends in its turn.
type VaultAWS struct {
	Mount string // of the auth method; usually aws
	// ServerID is the value of X-Vault-AWS-IAM-Server-ID that Vault may demand; may be empty.
	ServerID string
	// Config returns credentials and the region.
	Config func(context.Context) (aws.Config, error)
}

func (a VaultAWS) login(ctx context.Context, role string, now time.Time) (vaultLoginRequest, error) {
	service := awsService{vaultName, "sts", "STS", ""}
	config, err := a.Config(ctx)
	if err != nil || config.Credentials == nil {
		return vaultLoginRequest{}, &Error{Kind: Unreachable, Manager: vaultName, Code: "login: the node has no AWS credentials"}
	}
	credentials, err := config.Credentials.Retrieve(ctx)
	if err != nil {
		return vaultLoginRequest{}, credentialsError(service, err)
	}
	// Without a region this is the global endpoint, whose signatures are of us-east-1.
	address, region := "https://sts.amazonaws.com/", "us-east-1"
	if config.Region != "" {
		address, region = NewAWS(config, "").regional(service), config.Region
	}
	const body = "Action=GetCallerIdentity&Version=2011-06-15"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return vaultLoginRequest{}, err // impossible: the URL is ours
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if a.ServerID != "" {
		request.Header.Set("X-Vault-AWS-IAM-Server-ID", a.ServerID)
	}
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(ctx, credentials, request, hex.EncodeToString(sum[:]), "sts", region, now); err != nil {
		return vaultLoginRequest{}, err
	}
	headers := request.Header.Clone()
	headers.Set("Host", request.URL.Host)
	text, err := json.Marshal(headers)
	if err != nil {
		return vaultLoginRequest{}, err
	}
	encode := base64.StdEncoding.EncodeToString
	return vaultLoginRequest{mount: a.Mount, body: map[string]string{
		"role": role, "iam_http_request_method": http.MethodPost,
		"iam_request_url": encode([]byte(address)), "iam_request_body": encode([]byte(body)), "iam_request_headers": encode(text),
	}}, nil
}
