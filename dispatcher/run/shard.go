package run

import "strconv"

// MaxShards is how many shards a broadcast has at most: one for each endpoint of a group, of which as many may come from DNS
// as a group may have otherwise.
const MaxShards = 1000

// Shard tells a shard which part of a broadcast it is.
type Shard struct {
	// Index is from 0 to Total - 1, the place of its endpoint in the order of ids when the broadcast began.
	Index int `json:"index"`
	// Total is how many shards the broadcast has.
	Total int `json:"total"`
	// Endpoint is the id of the endpoint for which the shard was made. Another one gets the shard if that is gone.
	Endpoint string `json:"endpoint,omitempty" schema:"Name"`
}

// ShardCounts are the shards of a parent, by what has become of them.
type ShardCounts struct {
	Total     int `json:"total"`
	Succeeded int `json:"succeeded"`
	// Superseded are those that their endpoints refused as stale, and Failed those that have ended in another way.
	Superseded int `json:"superseded"`
	// Those that have ended in another way.
	Failed int `json:"failed"`
	// Live are those that have not ended.
	Live int `json:"live"`
}

// shardCode is what one shard adds to the number of a kind in databases.
const shardCode = 16

// Code returns the number by which databases hold the kind and the shard of a key. Of a run that is no shard it is that
// of the kind.
func (k Key) Code() int { return int(k.Kind.Code()) + shardCode*k.Shard }

// SetCode is the inverse of Code. Kind is empty if the number is of no kind.
func (k *Key) SetCode(code int) {
	k.Kind, _ = KindOfCode(byte(code % shardCode))
	k.Shard = code / shardCode
}

// Parent returns the key of the run that a shard is part of; of a run that is no shard, the key itself.
func (k Key) Parent() Key {
	k.Shard = 0
	return k
}

// OfIndex returns the key of the shard of k with an index.
func (k Key) OfIndex(index int) Key {
	k.Shard = index + 1
	return k
}

// EventOf returns the webhook-id of the run, where event is that of its fire; see Salt.EventID. Shards have ids of their own, so that
// a receiver that drops duplicates gets each of them.
func (k Key) EventOf(event string) string {
	if !k.Kind.OfTrigger() && k.Kind != KindManual {
		event += "-" + strconv.FormatInt(k.TriggerID, 32)
	}
	if k.Shard == 0 {
		return event
	}
	return event + "-" + strconv.Itoa(k.Shard-1)
}
