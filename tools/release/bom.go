package main

import "context"

func (r *release) billsOfMaterials(context.Context) error { return nil }
