package main

import "context"

func (r *release) mirror(context.Context) error { return nil }
