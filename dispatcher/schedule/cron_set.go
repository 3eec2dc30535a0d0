package schedule

import "math/bits"

// set is a set of numbers from 0 to 255, enough for any cron field. It holds years as their
// distance from firstYear.
type set [4]uint64

func (s *set) add(v int) { s[v>>6] |= 1 << (v & 63) }

// has reports whether v, which may be any number, is an element.
func (s *set) has(v int) bool { return v >= 0 && v < 256 && s[v>>6]>>(v&63)&1 == 1 }

// next returns the smallest element that is at least v.
func (s *set) next(v int) (int, bool) {
	if v < 0 {
		v = 0
	}
	for word := v >> 6; word < len(s); word++ {
		rest := s[word]
		if word == v>>6 {
			rest &= ^uint64(0) << (v & 63)
		}
		if rest != 0 {
			return word<<6 + bits.TrailingZeros64(rest), true
		}
	}
	return 0, false
}

// list returns the elements in order.
func (s *set) list() []int {
	var out []int
	for v, ok := s.next(0); ok; v, ok = s.next(v + 1) {
		out = append(out, v)
	}
	return out
}

func (s *set) len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// all returns the set of low to high, both inclusive.
func all(low, high int) set {
	var s set
	for word := low >> 6; word <= high>>6; word++ {
		s[word] = ^uint64(0)
	}
	s[low>>6] &= ^uint64(0) << (low & 63)
	s[high>>6] &= ^uint64(0) >> (63 - high&63)
	return s
}
