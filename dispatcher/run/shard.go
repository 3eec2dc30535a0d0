package run

import "strconv"

// MaxShards is how many shards a broadcast has at most: one for each endpoint of a group, which may have as many from
// DNS as from other sources.
const MaxShards = 1000

// Shard is the place of a shard in its broadcast.
type Shard struct {
	// Index is from 0 to Total - 1, the place of its endpoint in the order of ids when the broadcast began.
	Index int `json:"index"`
	// Total is how many shards the broadcast has.
	Total int `json:"total"`
	// Endpoint is the id of the endpoint that the shard was made for. If it is removed, another one gets the shard.
	Endpoint string `json:"endpoint,omitempty" schema:"Name"`
}

// ShardCounts count the shards of a parent by outcome.
type ShardCounts struct {
	Total     int `json:"total"`
	Succeeded int `json:"succeeded"`
	// Superseded are those that their endpoints refused as stale, and Failed those that ended in another way.
	Superseded int `json:"superseded"`
	// Those that ended in another way.
	Failed int `json:"failed"`
	// Live are those that have not ended.
	Live int `json:"live"`
}

// shardCode is the step between the numbers of shards of a kind in databases.
const shardCode = 16

// Code returns the number of the kind and the shard of a key in databases. Without a shard it is the code of the
// kind.
func (k Key) Code() int { return int(k.Kind.Code()) + shardCode*k.Shard }

// SetCode is the inverse of Code. Kind is empty if no kind has the number.
func (k *Key) SetCode(code int) {
	k.Kind, _ = KindOfCode(byte(code % shardCode))
	k.Shard = code / shardCode
}

// Parent returns the key of the run that a shard is part of; for other runs, the key itself.
func (k Key) Parent() Key {
	k.Shard = 0
	return k
}

// OfIndex returns the key of the shard of k with that index.
func (k Key) OfIndex(index int) Key {
	k.Shard = index + 1
	return k
}

// EventOf returns the webhook-id of the run; event is the webhook-id of its fire, see Salt.EventID. Shards have their
// own, so that a receiver that drops duplicates gets each of them.
func (k Key) EventOf(event string) string {
	if !k.Kind.OfTrigger() && k.Kind != KindManual {
		event += "-" + strconv.FormatInt(k.TriggerID, 32)
	}
	if k.Shard == 0 {
		return event
	}
	return event + "-" + strconv.Itoa(k.Shard-1)
}
