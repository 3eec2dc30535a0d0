# Fire times are left out on purpose: they move with time, and an output that changes would
# make every plan say so.
output "jobs" {
  description = "The jobs by import id, and what they ring."
  value = {
    for job in concat(
      [carillon_job.heartbeat, carillon_job.poll, carillon_job.minutely],
      carillon_job.once,
    ) : job.id => job.target.webhook.url
  }
}
