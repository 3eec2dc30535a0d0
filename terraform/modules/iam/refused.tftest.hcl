# Each run trips one validation.

variables {
  assumed_by = "ecs-tasks.amazonaws.com"
}

run "a_database_user" {
  command = plan
  variables {
    database_user_arn = "arn:aws:rds-db:eu-central-1:123456789012:dbuser:*/carillon"
  }
  expect_failures = [var.database_user_arn]
}

run "functions_by_name" {
  command = plan
  variables {
    lambda_function_arns = ["arn:aws:lambda:eu-central-1:123456789012:function:*"]
  }
  expect_failures = [var.lambda_function_arns]
}

run "queues_by_name" {
  command = plan
  variables {
    sqs_queue_arns = ["arn:aws:sqs:eu-central-1:123456789012:*"]
  }
  expect_failures = [var.sqs_queue_arns]
}

run "topics_by_name" {
  command = plan
  variables {
    sns_topic_arns = ["arn:aws:sns:eu-central-1:123456789012:*"]
  }
  expect_failures = [var.sns_topic_arns]
}

run "roles_by_name" {
  command = plan
  variables {
    assume_role_arns = ["arn:aws:iam::123456789012:role/*"]
  }
  expect_failures = [var.assume_role_arns]
}

run "a_role_of_an_app_that_nodes_may_not_assume" {
  command = plan
  variables {
    secret_role_arn  = "arn:aws:iam::123456789012:role/carillon-{app}"
    assume_role_arns = ["arn:aws:iam::123456789012:role/carillon"]
  }
  expect_failures = [var.secret_role_arn]
}

run "secrets_of_jobs_by_name_or_path" {
  command = plan
  variables {
    job_secret_arns = ["arn:aws:secretsmanager:eu-central-1:123456789012:secret:*"]
  }
  expect_failures = [var.job_secret_arns]
}

run "parameters_by_name_or_path" {
  command = plan
  variables {
    job_parameter_arns = ["arn:aws:ssm:eu-central-1:123456789012:parameter/*"]
  }
  expect_failures = [var.job_parameter_arns]
}

run "keys_of_keys_by_id" {
  command = plan
  variables {
    secret_keys_kms_key_arns = ["arn:aws:kms:eu-central-1:123456789012:alias/carillon"]
  }
  expect_failures = [var.secret_keys_kms_key_arns]
}

run "secrets_by_name" {
  command = plan
  variables {
    secret_arns = ["arn:aws:secretsmanager:eu-central-1:123456789012:secret:crm"]
  }
  expect_failures = [var.secret_arns]
}

run "keys_by_id" {
  command = plan
  variables {
    kms_key_arns = ["arn:aws:kms:eu-central-1:123456789012:alias/crm"]
  }
  expect_failures = [var.kms_key_arns]
}

run "a_repository_by_name" {
  command = plan
  variables {
    ecr_repository_arn = "arn:aws:ecr:eu-central-1:123456789012:repository/*"
  }
  expect_failures = [var.ecr_repository_arn]
}

run "a_log_group_by_name" {
  command = plan
  variables {
    log_group_arn = "arn:aws:logs:eu-central-1:123456789012:log-group:*"
  }
  expect_failures = [var.log_group_arn]
}

run "a_cluster_by_name" {
  command = plan
  variables {
    cluster_arn = "main"
  }
  expect_failures = [var.cluster_arn]
}

run "an_autoscaling_group_by_name" {
  command = plan
  variables {
    autoscaling_group_arn = "payroll"
  }
  expect_failures = [var.autoscaling_group_arn]
}

run "a_service_that_runs_nodes" {
  command = plan
  variables {
    assumed_by = "lambda.amazonaws.com"
  }
  expect_failures = [var.assumed_by]
}

run "an_account" {
  command = plan
  variables {
    source_account = "*"
  }
  expect_failures = [var.source_account]
}
