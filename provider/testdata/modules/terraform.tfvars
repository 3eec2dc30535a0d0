schedules = { x = "@daily", y = "0 0 12 * * ?" }
