package console

// part is a piece of a page that is read by a request of its own. If that fails, the rest of the page is as useful, so Problem is
// shown in its place.
type part[T any] struct {
	Value   T
	Problem string
}

// readPart makes a part of the response to a request.
func readPart[T any](value T, err error) part[T] {
	if err != nil {
		return part[T]{Problem: err.Error()}
	}
	return part[T]{Value: value}
}
