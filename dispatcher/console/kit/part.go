package kit

// Part is a piece of a page that is read by a request of its own. If that fails, the rest of the page is as useful, so Problem is
// shown in its place.
type Part[T any] struct {
	Value   T
	Problem string
}

// ReadPart makes a part of the response to a request.
func ReadPart[T any](value T, err error) Part[T] {
	if err != nil {
		return Part[T]{Problem: err.Error()}
	}
	return Part[T]{Value: value}
}
