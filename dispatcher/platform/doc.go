// Package platform is what a node says to, and learns from, the machine that it runs on: the ECS agent of its
// task, the metadata service of its instance, the service manager.
//
// It imports nothing of ours but the domain, and only cmd imports it. The engine declares what it needs of a
// machine, and cmd gives it the type from here that does it.
package platform
