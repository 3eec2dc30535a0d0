# The output leaves out fire times on purpose: they change with time, and every plan would show a
# changed output.
output "jobs" {
  description = "The URL that each job calls, by the job's import id."
  value = {
    for job in concat(
      [carillon_job.heartbeat, carillon_job.poll, carillon_job.minutely],
      carillon_job.once,
    ) : job.id => job.target.webhook.url
  }
}
