reports = {
  sales = { hour = 7 }
  stock = { hour = 8, minute = 0 }
}
