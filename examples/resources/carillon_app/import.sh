terraform import carillon_app.billing billing
