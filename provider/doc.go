// Package provider is the Terraform provider of Carillon: resources carillon_app,
// carillon_calendar and carillon_job, data sources carillon_runs and carillon_nodes.
//
// # One source of truth
//
// What is valid is decided by package dispatcher. A configuration becomes a domain object
// (the readers in job_model.go, calendar_model.go and app_resource.go), the object's
// Validate returns faults with JSON pointers, and diagnostics.go turns the pointers into
// attribute paths. The faults of the API's 422 answers go the same way, so a mistake reads
// the same at plan and at apply. What is unknown at plan is marked as deferred and judged at
// apply.
//
// # Plans that stay empty
//
// The state of a job and its next fire times move with time. They are computed and refreshed
// by Read, and become unknown in a plan only if something that a user wrote changes. What
// the API resolves (dialect, time zone, rules for daylight saving) is resolved at plan by the
// same code, so a plan states it. What a calendar excludes is not known there: the same plan
// may make or change it. Two texts that mean the same (60s and 1m, or one instant in two
// zones) are no difference: text.go for what the API answers, keepIfSame for what the
// configuration says.
//
// # No blind overwriting
//
// Create sends If-None-Match: *, Update and Delete send If-Match with the revision of the
// state that the plan was made from. A change from outside between plan and apply is
// therefore an error that names both revisions, never lost.
package provider
