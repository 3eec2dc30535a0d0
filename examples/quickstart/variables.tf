variable "receiver_url" {
  description = "Base URL of what the jobs ring; each adds a path of its own."
  type        = string
  default     = "http://127.0.0.1:8089"
}

variable "heartbeat_expression" {
  description = "When the job heartbeat fires."
  type        = string
  default     = "rate(2 seconds)"
}

variable "one_shot_at" {
  description = "Instant in RFC 3339 with a zone at which the job once fires; null for no such job."
  type        = string
  default     = null
}
