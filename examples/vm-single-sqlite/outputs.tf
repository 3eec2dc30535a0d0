output "instance_id" {
  description = "The machine, as Systems Manager knows it."
  value       = aws_instance.this.id
}

output "shell" {
  description = "Opens a shell on the machine."
  value       = "aws ssm start-session --target ${aws_instance.this.id}"
}

output "tunnel" {
  description = "Brings API and console to http://127.0.0.1:8080 on your machine, until you end it."
  value       = "aws ssm start-session --target ${aws_instance.this.id} --document-name AWS-StartPortForwardingSession --parameters portNumber=8080,localPortNumber=8080"
}

output "data_volume_id" {
  description = "The volume with jobs and history."
  value       = aws_ebs_volume.data.id
}
