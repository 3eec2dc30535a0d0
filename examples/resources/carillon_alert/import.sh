terraform import carillon_alert.on_call billing/on-call
