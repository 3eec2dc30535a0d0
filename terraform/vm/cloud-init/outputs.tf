output "user_data_base64" {
  description = "The cloud-config, compressed and in base64, as launch templates and instances take it."
  value       = local.compressed

  precondition {
    condition     = local.bytes <= 16384
    error_message = "The user data is ${local.bytes} bytes long; EC2 takes 16,384. Shorten the inputs: additional_packages, secrets or environment."
  }
}

output "cloud_config" {
  description = "The cloud-config as text, to read. It holds no secret."
  value       = local.cloud_config
}
