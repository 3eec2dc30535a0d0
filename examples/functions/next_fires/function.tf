# The first three fires of the year 2030: on January 1, 2 and 3 at 02:30 in Berlin.
output "first_fires" {
  value = provider::carillon::next_fires("0 30 2 * * ?", "Europe/Berlin", "2030-01-01T00:00:00Z", 3)
}
