// Package alert decides when the conditions of an alert begin and end, and which notifications follow. It has the
// definitions of alerts, the states of their conditions, and the state machine between them. Package target writes
// the notifications and sends them.
package alert
