package terraform_test

// ecsPolicies hold for what terraform/ecs creates.
var ecsPolicies = []policy{}
