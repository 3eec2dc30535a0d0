package aws

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func roleCall(n int) target.Call {
	return target.Call{App: "a", Job: fmt.Sprint("j", n), AWSExternalID: "x", Target: target.Target{Lambda: &target.Lambda{
		Function: "f", AssumeRole: &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/r"},
	}}}
}

// T21: jobs choose the keys of clients, so the number of clients is bounded, and the configuration is loaded once.
func TestClientsOfAWSAreBounded(t *testing.T) {
	t.Parallel()
	var loads atomic.Int32
	f := newClients(&identity.Node{Load: func(context.Context) (aws.Config, error) {
		loads.Add(1)
		return aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("A", "b", "")}, nil
	}}, func(aws.Config) int { return 0 })
	first, err := f.client(t.Context(), roleCall(0))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * mostClients {
		if _, err := f.client(t.Context(), roleCall(n)); err != nil {
			t.Fatal(err)
		}
		if again, err := f.client(t.Context(), roleCall(0)); err != nil || again != first {
			t.Fatalf("after %d others, the client that is in use is another: %v", n, err)
		}
	}
	if f.clients.Len() > mostClients || loads.Load() != 1 {
		t.Errorf("%d clients are kept after %d loads, want at most %d after 1", f.clients.Len(), loads.Load(), mostClients)
	}
}

// T21: while the configuration of AWS is loaded, which may take seconds, functions with a known client are invoked.
func TestLoadingTheConfigurationOfAWSBlocksNoKnownFunction(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	var loads atomic.Int32
	f := newClients(&identity.Node{Load: func(context.Context) (aws.Config, error) {
		if loads.Add(1) == 1 {
			close(begun)
			<-end
		}
		return aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("A", "b", "")}, nil
	}}, func(aws.Config) int { return 0 })
	slow := make(chan error, 1)
	go func() {
		_, err := f.client(t.Context(), roleCall(1))
		slow <- err
	}()
	<-begun
	if _, err := f.client(t.Context(), roleCall(2)); err != nil {
		t.Error(err)
	}
	close(end)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}
