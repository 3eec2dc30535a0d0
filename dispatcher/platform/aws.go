package platform

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
)

// AWSIdentity is who AWS takes this process for.
type AWSIdentity struct {
	Source string // where the credentials come from, such as EnvConfigCredentials; empty: there are none
	Region string // empty: none is configured
	ARN    string // empty: AWS was not asked, or did not say
}

// loadAWS loads the AWS configuration. The SDK would write warnings of its own into the log, in a form of its own.
func loadAWS(ctx context.Context) (aws.Config, error) {
	return config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
}

// IdentifyAWS looks for credentials in the default chain, and asks AWS whose they are. An error with a Source is
// one of that call; without one there are no credentials.
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
		loaded.Region = "us-east-1" // any region knows all identities
	}
	client := sts.NewFromConfig(loaded, func(o *sts.Options) { o.Retryer = aws.NopRetryer{} })
	caller, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return found, fmt.Errorf("ask AWS for the identity: %w", err)
	}
	found.ARN = aws.ToString(caller.Arn)
	return found, nil
}
