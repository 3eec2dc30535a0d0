// Package provider is the Terraform provider of Carillon: the resources that people declare (apps, calendars,
// endpoint groups, alerts and jobs), data sources for Carillon's own objects, and functions.
//
// # A resource
//
// Each kind of definition is a row: the struct definition with its requests, its plan checks, and the rows of
// its attributes, from which package binding makes the schema, the object of the domain and the values of
// Terraform. definition.go plans, reads, writes and deletes with such a row, and server.go serves Terraform's
// requests with it. Jobs replace some of these steps; the files job_*.go and target.go hold their parts.
//
// # Blocks
//
// All that a user writes inside a resource is in blocks, because Terraform drops names that it does not know from
// an attribute that holds an object, without a message (hashicorp/terraform#33570); in a block it names their line.
// A plan cannot add a block that the configuration leaves out. So an optional one has no default and is not
// computed, and its state is null while it is left out and the API holds its defaults.
//
// Blocks of which there are many have a name and no label: a label must be known when Terraform validates, which
// shuts out variables, each.value and modules. For Terraform they are a list, which it compares by position. Their
// order has no meaning, so package protocol keeps them as a map, and each in the place that the state has for it.
//
// # One source of truth
//
// Package dispatcher decides what is valid. The result of expanding is a domain object. Its Validate method
// returns problems with JSON pointers, and package binding turns the pointers into attribute paths. Problems
// from the API's 422 responses go the same way, so a mistake reads the same at plan and at apply. The
// expander records values that are unknown at plan, and apply checks them.
//
// # Plans that stay empty
//
// The state of a job and its next fire times change with time. Read refreshes them, and a plan marks them as
// unknown only if something that the user wrote changes. Values that the API resolves (dialect, time zone,
// rules for daylight saving) are resolved at plan by the same code, so the plan shows them. The exclusions of
// a calendar are not known there, because the same plan may create or change the calendar. Two strings with
// the same meaning (60s and 1m, or one instant in two zones) are no difference: the types in binding/texts.go
// compare what the API returns, and keepEquivalent compares the configuration. Package plan explains real
// changes in words.
//
// # Many jobs
//
// Most of the cost of a plan is the framework's repeated walk through the schema, so server.go serves the
// requests about jobs by itself, with package protocol: it has a table of the attributes, and skips the
// framework's intermediate form of values. Neither way replaces the other. With the framework alone, creating
// many jobs cost the provider five times the processor time (docs/why/performance.md). Without it, schemas,
// imports, deletes and the messages about incomplete configurations would have to be written again, only to
// save the seventy lines of definition_resource.go that unpack requests. Both ways end in the same methods of
// kind, and a test compares their responses.
//
// # No blind overwriting
//
// Create sends If-None-Match: *. Update and Delete send If-Match with the revision in the state that the plan
// was made from. So a change between plan and apply is never lost: the apply fails with an error that names
// both revisions.
package provider
