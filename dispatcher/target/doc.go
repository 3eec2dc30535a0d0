// Package target is what an attempt calls and with what: webhooks, Lambda functions, queues, topics, endpoint groups and the
// destinations of alerts; how they are authenticated to; the templates that are filled in; and the bounds of an app within
// which all that must stay.
package target
