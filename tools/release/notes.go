package main

import "context"

func (r *release) notes(context.Context) error { return nil }
