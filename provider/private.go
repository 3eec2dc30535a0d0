package provider

import "encoding/json"

// privateFormat is the format of private that this version writes. It reads no other.
const privateFormat = 1

// private is what Terraform keeps about a resource next to its state, and shows to nobody.
type private struct {
	Format int `json:"format"`
	// Origin is the name that a job was created with. It identifies the job, because a rename does not change it.
	Origin string `json:"origin,omitempty"`
}

// privateIn reads the private data of a resource. Those of another format, or none, give an empty value.
func privateIn(data []byte) (p private) {
	if err := json.Unmarshal(data, &p); err != nil || p.Format != privateFormat {
		return private{}
	}
	return p
}

// data is the inverse of privateIn; nil if there is nothing to keep.
func (p private) data() []byte {
	if p == (private{}) {
		return nil
	}
	p.Format = privateFormat
	data, _ := json.Marshal(p) // its types always succeed
	return data
}
