resource "carillon_job" "load" {
  app  = "shop"
  name = "load"
  target {
    webhook {
      url = "https://warehouse.example.com/load"
    }
  }
  on_success {
    jobs    = ["report", "report", "load", "No name"]
    payload = "results"
  }
  on_failure {
    webhook {
      url = "ftp://oncall.example.com"
    }
    lambda {
      function = "f"
    }
  }
  on_misfire {}
}
