locals {
  container = merge({
    name      = "carillon"
    image     = var.image
    essential = true
    command   = ["serve"]
    user      = "65532:65532"

    # All of the task's. A limit of the task alone may not be seen in the container, and the node keeps its memory
    # below what it sees.
    memory = var.memory

    # The image is one program: there is no shell in it, and nothing to write to. It starts no processes, so
    # that it needs no init before it.
    readonlyRootFilesystem = true
    linuxParameters        = { capabilities = { drop = ["ALL"] }, initProcessEnabled = false }
    ulimits                = [{ name = "nofile", softLimit = 65535, hardLimit = 65535 }]
    stopTimeout            = var.stop_timeout

    # The database is no part of this: a restart would not bring it back.
    healthCheck = {
      command     = ["CMD", "/carillon", "probe", "livez"]
      interval    = 10
      timeout     = 5
      retries     = 3
      startPeriod = 60
    }

    portMappings = [{ name = "http", containerPort = module.config.port, protocol = "tcp" }]
    environment = [for name, value in merge(module.config.environment, { AWS_REGION = local.region }) :
      { name = name, value = value }
    ]
    secrets = [for name, arn in module.config.secrets : { name = name, valueFrom = arn }]

    # Non-blocking: if CloudWatch is unreachable, lines are lost, and no fire waits for it.
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = local.log_group
        awslogs-region        = local.region
        awslogs-stream-prefix = "node"
        mode                  = "non-blocking"
        max-buffer-size       = "25m"
      }
    }
  }, local.registry)

  registry = var.repository_credentials_secret_arn == null ? {} : {
    repositoryCredentials = { credentialsParameter = var.repository_credentials_secret_arn }
  }
}

resource "aws_ecs_task_definition" "this" {
  family                   = var.name
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.cpu
  memory                   = var.memory
  task_role_arn            = aws_iam_role.task.arn
  execution_role_arn       = aws_iam_role.execution.arn
  container_definitions    = jsonencode([local.container])
  tags                     = local.tags

  # The circuit breaker goes back to the revision before: it has to be there.
  skip_destroy = true

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = var.cpu_architecture
  }

  # Without its permissions a node would start and fail.
  depends_on = [aws_iam_role_policy.execution, aws_iam_role_policy.task, aws_cloudwatch_log_group.this]
}
