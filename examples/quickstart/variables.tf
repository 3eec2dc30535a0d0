variable "receiver_url" {
  description = "Base URL that the jobs call; each job adds its own path."
  type        = string
  default     = "http://127.0.0.1:8089"
}

variable "heartbeat_expression" {
  description = "Schedule of the job heartbeat."
  type        = string
  default     = "rate(2 seconds)"
}

variable "one_shot_at" {
  description = "Instant in RFC 3339 with a time zone at which the job once fires; null creates no such job."
  type        = string
  default     = null
}
