package terraform_test

// vmPolicies hold for what terraform/vm creates.
var vmPolicies = []policy{}
