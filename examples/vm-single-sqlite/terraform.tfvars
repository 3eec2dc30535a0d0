# Put your values here. README.md says where the packages are, and how to compute their sums.
region    = "eu-central-1"
subnet_id = "subnet-0a1b2c3d4e5f60718"
package = {
  url    = "https://github.com/carillon-dev/carillon/releases/download/v0.1.0/carillon_0.1.0_arm64.deb"
  sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
}
log_agent = {
  url    = "https://amazoncloudwatch-agent.s3.amazonaws.com/debian/arm64/latest/amazon-cloudwatch-agent.deb"
  sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
}
session_agent = {
  url    = "https://s3.eu-central-1.amazonaws.com/amazon-ssm-eu-central-1/latest/debian_arm64/amazon-ssm-agent.deb"
  sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
}
alarm_email = "on-call@example.com"
