zone = "Europe/Berlin"
