// Package tfconfig reads and writes Terraform files with the resources carillon_app, carillon_calendar,
// carillon_endpoint_group, carillon_alert and carillon_job, without Terraform and without a server.
//
// A directory is read as Terraform reads a root module, with the local modules that it calls. Values that the files
// determine are evaluated when something needs them: literals, locals, variables with their types and defaults,
// outputs, for_each and count over such values, and functions of their arguments and of files. Everything else is
// unknown, and not judged: a problem is only reported where every value that it depends on is known.
//
// schema.json has the attributes and blocks of each resource. A test of the provider writes that file from the
// provider's schema and fails if the two differ, because this package cannot import the provider.
package tfconfig
