package db

import "errors"

// unreadable is why a stored definition cannot be decoded. The rest of its row can be read.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// AsUnreadable marks an error as being about a definition, and not about its row.
func AsUnreadable(err error) error { return unreadable{err} }

// IsUnreadable tells whether an error was marked by AsUnreadable.
func IsUnreadable(err error) bool { return errors.As(err, new(unreadable)) }

// EvenUnreadable is a scan that lets note have why a definition cannot be decoded, and goes on with the rest.
func EvenUnreadable[T any](scan func(Scanner) (T, error), note func(*T, error)) func(Scanner) (T, error) {
	return func(row Scanner) (T, error) {
		found, err := scan(row)
		if IsUnreadable(err) {
			note(&found, err)
			err = nil
		}
		return found, err
	}
}
