// Package target describes the targets of attempts: webhooks, Lambda functions, queues, topics, endpoint groups and
// the destinations of alerts. It has their authentication, their templates, and the bounds of an app that they must
// stay within.
package target
