// Package access has who may do what: apps, tokens, sessions and the audit log, and what leaves one installation for another.
package access
