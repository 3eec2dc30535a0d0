package routing

import (
	"crypto/sha256"
	"encoding/binary"
)

// The functions here decide where keys go. All nodes of all versions must agree, so a change moves the
// keys of every group.

// hash returns the first 8 bytes of a text's SHA-256, as a big-endian number.
func hash(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:8])
}

// highestScore returns the candidate with the highest score for a key; among equals, the first. Scores of
// endpoints do not depend on each other, so a key moves only to an endpoint that came, or from one that
// went. This is rendezvous hashing; unlike a ring, it has exact shares, and nothing to build when members
// change.
func (m *Members) highestScore(candidates []int, key uint64) int {
	best, highest := candidates[0], uint64(0)
	for _, place := range candidates {
		if s := m.entries[place].score(key); s > highest {
			best, highest = place, s
		}
	}
	return best
}

// score returns how well an endpoint suits a key. It has as many virtual nodes as its weight, whose scores
// are the numbers of SplitMix64 from the seed that key and endpoint have together; the highest counts.
func (e *entry) score(key uint64) uint64 {
	seed, highest := e.hash^key, uint64(0)
	for range e.weight {
		seed += 0x9e3779b97f4a7c15
		x := seed
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		highest = max(highest, x^x>>31)
	}
	return highest
}
