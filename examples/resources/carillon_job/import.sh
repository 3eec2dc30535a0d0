terraform import carillon_job.nightly_report billing/nightly-report
