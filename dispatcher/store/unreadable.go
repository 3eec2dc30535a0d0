package store

import "errors"

// unreadable is why a stored definition cannot be decoded. The rest of its row can be read.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// asUnreadable marks an error as being about a definition, and not about its row.
func asUnreadable(err error) error { return unreadable{err} }

// evenUnreadable is a scan that lets note have why a definition cannot be decoded, and goes on with the rest.
func evenUnreadable[T any](scan func(scanner) (T, error), note func(*T, error)) func(scanner) (T, error) {
	return func(row scanner) (T, error) {
		found, err := scan(row)
		if why := (unreadable{}); errors.As(err, &why) {
			note(&found, err)
			err = nil
		}
		return found, err
	}
}
