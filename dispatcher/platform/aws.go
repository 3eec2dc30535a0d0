package platform

import (
	"context"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
)

// AWSIdentity is the identity of this process at AWS.
type AWSIdentity struct {
	Source string // origin of the credentials, such as EnvConfigCredentials; empty without credentials
	Region string // empty if none is configured
	ARN    string // empty if AWS was not asked or did not say
}

// loadAWS loads the AWS configuration, without the warnings that the SDK would log in a format of its own.
func loadAWS(ctx context.Context) (aws.Config, error) {
	return config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
}

// IdentifyAWS looks for credentials in the default chain and asks AWS for their identity. An error
// of that call comes with a Source; an error without a Source means that there are no credentials.
func IdentifyAWS(ctx context.Context) (AWSIdentity, error) {
	loaded, err := loadAWS(ctx)
	if err != nil {
		return AWSIdentity{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	found := AWSIdentity{Region: loaded.Region}
	if loaded.Credentials == nil {
		return found, nil
	}
	credentials, err := loaded.Credentials.Retrieve(ctx)
	if err != nil {
		return found, fmt.Errorf("get AWS credentials: %w", err)
	}
	found.Source = credentials.Source
	if found.Region == "" {
		loaded.Region = "us-east-1" // any region serves all identities
	}
	client := sts.NewFromConfig(loaded, func(o *sts.Options) { o.Retryer = aws.NopRetryer{} })
	caller, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return found, fmt.Errorf("ask AWS for the identity: %w", err)
	}
	found.ARN = aws.ToString(caller.Arn)
	return found, nil
}

// RDSTokens makes the tokens that replace passwords in the IAM authentication of Amazon RDS. A
// token is signed here, without a call, and permits a login for 15 minutes.
//
// The credentials come from the default chain of AWS: the environment, the shared files, the role
// of the task or the instance. The chain renews them before they expire.
type RDSTokens struct {
	mu     sync.Mutex
	loaded *aws.Config
}

// rdsHost matches the names of RDS servers, which contain the region. The name of a global database does not.
var rdsHost = regexp.MustCompile(`\.(?:rds\.)?([a-z]{2}(?:-[a-z]+)+-\d+)(?:\.rds)?\.amazonaws\.com(?:\.cn)?\.?$`)

// Token returns a new token for the login of user at a server. Its region comes from the name of
// the server, or else from the AWS configuration; RDS refuses a token for another region. Errors
// contain no part of a token or a key.
func (t *RDSTokens) Token(ctx context.Context, host string, port uint16, user string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	loaded, err := t.config(ctx)
	if err != nil {
		return "", err
	}
	region := loaded.Region
	if found := rdsHost.FindStringSubmatch(host); found != nil {
		region = found[1]
	}
	switch {
	case region == "":
		return "", fmt.Errorf("rds-iam: no region is known: the host %q names none, and AWS_REGION is not set", host)
	case loaded.Credentials == nil:
		return "", errors.New("rds-iam: there are no AWS credentials")
	}
	token, err := auth.BuildAuthToken(ctx, net.JoinHostPort(host, strconv.Itoa(int(port))), region, user, loaded.Credentials)
	if err != nil {
		return "", fmt.Errorf("rds-iam: get AWS credentials: %w", err)
	}
	return token, nil
}

// tokenTimeout bounds the search for credentials, which the SDK would otherwise continue for minutes.
const tokenTimeout = 10 * time.Second

// config loads the AWS configuration once; an attempt that fails is repeated by the next call.
func (t *RDSTokens) config(ctx context.Context) (aws.Config, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loaded == nil {
		loaded, err := loadAWS(ctx)
		if err != nil {
			return aws.Config{}, fmt.Errorf("rds-iam: load the AWS configuration: %w", err)
		}
		t.loaded = &loaded
	}
	return *t.loaded, nil
}

//go:embed rds_roots.pem
var rdsRoots []byte

// RDSRoots returns the root certificates of the servers of Amazon RDS and of RDS Proxy.
func RDSRoots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(rdsRoots) // a test parses each of them
	return pool
}
