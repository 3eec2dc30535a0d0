package api

import "context"

// WriteRefusals writes the refusals that wait, however long it takes: a node that ends has half a second for them.
func (a *API) WriteRefusals(ctx context.Context) { a.gate.WriteRefusals(ctx) }
