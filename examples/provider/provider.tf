terraform {
  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}

# The token is best left to the environment variable CARILLON_TOKEN.
provider "carillon" {
  endpoint = "https://carillon.internal:8080"
}
