resource "carillon_app" "billing" {
  name        = "billing"
  description = "Invoices and reminders"
  retention   = "2160h" # 90 days of history

  # Only operators set bounds; leave them out in the configuration of the app's owner.
  bounds {
    quotas {
      jobs                   = 500
      manual_runs_per_minute = 60
    }
    secrets = ["env:SECRET_BILLING_*", "file:billing/*", "file:shared/ledger-key"]
    egress {
      hosts = ["*.example.com"]
      ports = [443]
    }
    lambda {
      functions = ["arn:aws:lambda:eu-central-1:123456789012:function:billing-*"]
      roles     = ["arn:aws:iam::123456789012:role/billing-*"]
    }
  }
}
