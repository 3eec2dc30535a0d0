package invoke

import "context"

// NodeRegion returns the AWS region of the node, as its environment and files name it; empty if they do not.
func NodeRegion(ctx context.Context) string {
	loaded, err := LoadAWS(ctx)
	if err != nil {
		return "" // the first call of a function reports it
	}
	return loaded.Region
}
