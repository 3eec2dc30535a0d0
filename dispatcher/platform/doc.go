// Package platform is what a node has to do with the machine that it runs on, and only there: the tokens by
// which it logs in to Amazon RDS, and the memory that its container may use.
//
// It knows nothing of jobs and databases. The command connects it with the rest.
package platform
