terraform {
  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}

# Set the token in the environment variable CARILLON_TOKEN, which keeps it out of files.
provider "carillon" {
  endpoint = "https://carillon.internal:8080"
}
