// Package access has apps, tokens, sessions and the audit log, and the export of an app to another installation.
package access
